"""Files of annotation tools, written out here as the tools document them."""

import gzip
import json

import numpy as np
import pytest

from bagwise.errors import DataError
from bagwise.media.labels import read_labels
from bagwise.media.labels.picture_tools import brush_mask, coco_mask
from bagwise.media.labels.span import area, contains

STANDARD = "Selection\tView\tChannel\tBegin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)"


def put(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def times(found):
    return [(s.file, s.label, s.start, s.end, s.low, s.high) for s in found.spans]


# ---------------------------------------------------------------------- Raven


def test_raven_folder(tmp_path):
    rows = "1\tSpectrogram 1\t1\t12.5\t15.5\t0\t12000\twren\t0.91\n"
    put(tmp_path, "x/a.Table.1.selections.txt", f"{STANDARD}\tSpecies\tConfidence\n{rows}")
    put(tmp_path, "b.Table.1.selections.txt", f"{STANDARD}\tSpecies\t\n")  # looked at, nothing found
    found = read_labels(tmp_path, ["x/a.wav", "b.wav", "c.wav"], "audio")
    assert times(found) == [("x/a.wav", "wren", 12.5, 15.5, 0, 12000)] and found.spans[0].score == 0.91
    assert found.bag_labels == {"x/a.wav": ["wren"], "b.wav": []} and found.files_without == ["c.wav"]
    assert found.said.endswith("Raven selection tables (2 files)")


def test_raven_waveform_rows_and_short_rows(tmp_path):
    both = "1\tWaveform 1\t1\t1\t2\t0\t9000\twren\n1\tSpectrogram 1\t1\t1\t2\t2000\t4000\twren\n"
    alone = "2\tWaveform 1\t1\t5\t6\t0\t9000\tgull\n3\tSpectrogram 1\t1\t7\t8\t0\t9000\n"
    path = put(tmp_path, "a.Table.1.selections.txt", f"{STANDARD}\tAnnotation\n{both}{alone}")
    found = read_labels(path, ["a.wav"], "audio")
    assert times(found) == [("a.wav", "wren", 1, 2, 2000, 4000), ("a.wav", "gull", 5, 6, 0, 9000)]


def test_raven_table_of_several_files(tmp_path):
    head = f"{STANDARD}\tBegin File\tFile Offset (s)\tAnnotation"
    rows = "1\tSpectrogram 1\t1\t12.5\t15.5\t0\t12000\ta.wav\t12.5\twren\n"
    rows += "2\tSpectrogram 1\t1\t63.0\t66.0\t0\t12000\tb.wav\t3.0\trobin\n"
    found = read_labels(put(tmp_path, "all.txt", f"{head}\n{rows}"), ["a.wav", "b.wav"], "audio")
    assert times(found)[1] == ("b.wav", "robin", 3.0, 6.0, 0, 12000)


def test_birdnet_selection_table(tmp_path):
    head = f"{STANDARD}\tCommon Name\tSpecies Code\tConfidence\tBegin Path\tFile Offset (s)"
    row = "1\tSpectrogram 1\t1\t0\t3\t150\t15000\t{}\t{}\t{}\t/me/{}.wav\t0.0\n"
    put(tmp_path, "a.BirdNET.selection.table.txt", f"{head}\n{row.format('Wren', 'w', 0.8, 'a')}")
    put(tmp_path, "b.BirdNET.selection.table.txt", f"{head}\n{row.format('nocall', 'nocall', 1.0, 'b')}")
    found = read_labels(tmp_path, ["a.wav", "b.wav"], "audio")
    assert found.bag_labels == {"a.wav": ["Wren"], "b.wav": []} and not found.spans


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1\tS 1\t1\tx\t2\t0\t9000\twren\n", "line 2: column 'Begin Time .s.': expected a number, found 'x'"),
        ("1\tS 1\t1\t3\t2\t0\t9000\twren\n", "line 2: a selection ends at 2, before it begins at 3"),
        ("1\tS 1\t1\t\t2\t0\t9000\twren\n", "line 2: a selection without begin or end"),
    ],
)
def test_raven_mistakes(tmp_path, row, message):
    path = put(tmp_path, "a.Table.1.selections.txt", f"{STANDARD}\tAnnotation\n{row}")
    with pytest.raises(DataError, match=message):
        read_labels(path, ["a.wav"], "audio")
    path = put(tmp_path, "a.Table.1.selections.txt", f"{STANDARD}\tOne\tTwo\n1\tS 1\t1\t1\t2\t0\t9\ta\tb\n")
    with pytest.raises(DataError, match=r"no column of labels .*; candidates: One, Two"):
        read_labels(path, ["a.wav"], "audio")
    assert read_labels(path, ["a.wav"], "audio", label_columns=["Two"]).label_names == ["b"]


# ---------------------------------------------------------------------- Audacity


def test_audacity(tmp_path):
    text = "12.500000\t15.500000\twren (0.91)\n\\\t2000.000000\t-1.000000\n\\later\tthings\n"
    text += "20\tpoint\n21.0\t21.5\t\n"
    put(tmp_path, "a.txt", text)
    put(tmp_path, "b.txt", "")
    found = read_labels(tmp_path, ["a.wav", "b.wav"], "audio")
    assert times(found) == [("a.wav", "wren", 12.5, 15.5, 2000, None), ("a.wav", "point", 20, 20, None, None)]
    assert found.spans[0].score == 0.91 and found.bag_labels["b.wav"] == []
    path = put(tmp_path, "a.BirdNET.results.txt", "0.0\t3.0\tT t_Wren\t0.8\n3.0\t6.0\tE r, Robin\t0.7\n")
    assert read_labels(path, ["a.wav"], "audio").bag_labels == {"a.wav": ["Robin", "Wren"]}
    with pytest.raises(DataError, match="line 2: the end: expected a number"):
        read_labels(put(tmp_path, "c.txt", "0\t1\tx\n1\ttwo\tx\n"), ["c.wav"], "audio")


# ---------------------------------------------------------------------- Label Studio


def task(data, *results, **more):
    return {"data": data, "annotations": [{"result": list(results), **more}]}


def region(kind, value, **more):
    return {"from_name": "label", "to_name": "x", "type": kind, "value": value, **more}


SIZES = {"original_width": 200, "original_height": 100}


def test_label_studio_audio(tmp_path):
    tasks = [
        task(
            {"audio": "/data/upload/1/0123abcd-a.wav"},
            region("labels", {"start": 1.5, "end": 2, "labels": ["wren", "gull"], "score": 0.5}),
            region("choices", {"choices": ["dawn"]}),
        ),
        task({"audio": "https://host/b.wav"}),
        task({"audio": "c.wav"}, region("choices", {"choices": ["dusk"]}), was_cancelled=True),
    ]
    found = read_labels(put(tmp_path, "ls.json", tasks), ["a.wav", "b.wav", "c.wav"], "audio")
    assert times(found) == [("a.wav", "wren", 1.5, 2, None, None), ("a.wav", "gull", 1.5, 2, None, None)]
    assert found.bag_labels == {"a.wav": ["dawn", "gull", "wren"], "b.wav": []}
    assert found.files_without == ["c.wav"] and found.said == "ls.json: Label Studio annotations"


def test_label_studio_pictures(tmp_path):
    brush = [0, 0, 0, 16, 57, 27, 252, 96, 17, 255, 206, 0]
    small = {"original_width": 2, "original_height": 2}
    box = {"x": 10, "y": 20, "width": 50, "height": 40, "rotation": 0}
    results = [
        region("rectanglelabels", {**box, "rectanglelabels": ["cat"]}, **SIZES),
        region("polygonlabels", {"points": [[0, 0], [50, 0], [50, 100]], "polygonlabels": ["dog"]}, **SIZES),
        region("brushlabels", {"format": "rle", "rle": brush, "brushlabels": ["bird"]}, **small),
        region("rectangle", box, id="r", **SIZES),
        region("labels", {**box, "labels": ["cow"]}, id="r", **SIZES),
        region("rectanglelabels", {**box, "rotation": 90, "rectanglelabels": ["owl"]}, **SIZES),
        region(
            "ellipselabels",
            {"x": 50, "y": 50, "radiusX": 10, "radiusY": 20, "ellipselabels": ["sun"]},
            **SIZES,
        ),
    ]
    path = put(tmp_path, "ls.json", [task({"image": "p.jpg"}, *results)])
    cat, dog, bird, cow, owl, sun = read_labels(path, ["p.jpg"], "image").spans
    assert (cat.x, cat.y, cat.width, cat.height) == (20, 20, 100, 40) == (cow.x, cow.y, cow.width, cow.height)
    assert area(dog.outline) == 100 * 100 / 2
    assert bird.outline.area == 1 and (bird.x, bird.y, bird.width, bird.height) == (1, 0, 1, 1)
    # clockwise about its top left corner: what lay right of it now lies below
    np.testing.assert_allclose((owl.x, owl.y, owl.width, owl.height), (20 - 40, 20, 40, 100), atol=1e-9)
    assert area(sun.outline) == pytest.approx(np.pi * 20 * 20, rel=0.01)


def test_label_studio_text_counts_utf16(tmp_path):
    text = "a😀 word here"
    new = region("labels", {"start": 4, "end": 8, "text": "word", "labels": ["X"]})
    old = region("labels", {"start": 4, "end": 7, "text": "word", "labels": ["Y"]})  # end included
    path = put(tmp_path, "ls.json", [task({"text": text, "file": "t.txt"}, new, old)])
    for span in read_labels(path, ["t.txt"], "text").spans:
        assert text[span.start_char : span.end_char] == "word"


def test_label_studio_predictions_only_without_annotations(tmp_path):
    guess = {"result": [region("choices", {"choices": ["gull"]})], "score": 0.9}
    first = {"data": {"audio": "a.wav"}, "predictions": [guess]}
    found = read_labels(put(tmp_path, "p.json", [first]), ["a.wav"], "audio")
    assert found.bag_labels == {"a.wav": ["gull"]} and "predictions" in found.said
    second = task({"audio": "b.wav"}, region("choices", {"choices": ["wren"]}))
    found = read_labels(put(tmp_path, "p.json", [first, second]), ["a.wav", "b.wav"], "audio")
    assert found.bag_labels == {"b.wav": ["wren"]}
    old = [{"data": {"audio": "a.wav"}, "completions": [{"result": [region("choices", {"choices": ["x"]})]}]}]
    assert read_labels(put(tmp_path, "o.json", old), ["a.wav"], "audio").label_names == ["x"]


# ---------------------------------------------------------------------- COCO and its masks


def coco(annotation, **image):
    return {
        "images": [{"id": 7, "file_name": "p.jpg", "width": 4, "height": 4, **image}],
        "categories": [{"id": 3, "name": "cat"}],
        "annotations": [{"id": 1, "image_id": 7, "category_id": 3, **annotation}],
    }


def test_coco(tmp_path):
    rle = {"size": [4, 4], "counts": "5240O"}
    for annotation, size in [
        ({"bbox": [1, 1, 2, 2]}, None),
        ({"bbox": [1, 1, 2, 2], "segmentation": [[1, 1, 3, 1, 3, 3]]}, 2),
        ({"segmentation": rle}, 4),
        ({"segmentation": {"size": [4, 4], "counts": [5, 2, 4, 2, 3]}, "iscrowd": 1}, 4),
    ]:
        found = read_labels(put(tmp_path, "c.json", coco(annotation)), ["p.jpg", "q.jpg"], "image")
        (span,) = found.spans
        assert span.label == "cat" and found.bag_labels == {"p.jpg": ["cat"]}
        assert size is None or area(span.outline) == size
    whole = read_labels(put(tmp_path, "c.json", coco({"bbox": [1, 1, 2, 2]}, labels=["indoors"])), ["p.jpg"])
    assert whole.bag_labels == {"p.jpg": ["cat", "indoors"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image_id": 8}, r"annotations\[0\]: image_id 8 is not among the images"),
        ({"category_id": 9}, "category_id 9 is not among the categories"),
        ({"bbox": [1, 2, 3]}, r"bbox: expected x, y, width and height"),
        ({"bbox": [1, 2, "3", 4]}, r"bbox\[2\]: expected a number, found '3'"),
        ({"segmentation": [[1, 2, 3]]}, "a polygon of 3 numbers"),
        ({"segmentation": {"size": [4, 4], "counts": [5, 2]}}, "add up to 7, its size is 4 x 4"),
        ({"segmentation": {"size": [4, 4], "counts": "é"}}, "cannot stand in a compressed mask"),
        ({"segmentation": {"size": [10**9, 10**9], "counts": [10**18]}}, "cannot be|finite"),
    ],
)
def test_coco_mistakes(tmp_path, change, message):
    with pytest.raises(DataError, match=message):
        read_labels(put(tmp_path, "c.json", coco({"bbox": [1, 1, 2, 2], **change})), ["p.jpg"], "image")


def unpack(mask):
    """The mask pixel by pixel."""
    flat = np.zeros(mask.height * mask.width, dtype=bool)
    begin = 0
    for k, end in enumerate(mask.ends.tolist()):
        flat[begin:end] = k % 2 == 1
        begin = end
    return flat.reshape((mask.height, mask.width), order="F" if mask.by_column else "C")


def brush_bytes(mask, rng):
    """Write a mask as Label Studio does, in runs and literals of random lengths."""
    values = np.repeat(np.where(mask, 255, 0).ravel(), 4)
    sizes = [3, 4, 8, 16]
    bits = f"{len(values):032b}{7:05b}" + "".join(f"{size - 1:04b}" for size in sizes)
    k = 0
    while k < len(values):
        same = np.flatnonzero(values[k:] != values[k])
        run = int(same[0]) if len(same) else len(values) - k
        which = int(rng.integers(4))
        if run > 1 and rng.random() < 0.8:
            count = min(run, 2 ** sizes[which])
            bits += f"1{which:02b}{count - 1:0{sizes[which]}b}{values[k]:08b}"
        else:
            count = min(int(rng.integers(1, 9)), len(values) - k, 2 ** sizes[which])
            bits += f"0{which:02b}{count - 1:0{sizes[which]}b}" + "".join(
                f"{v:08b}" for v in values[k : k + count]
            )
        k += count
    bits += "0" * (-len(bits) % 8)
    return [int(bits[j : j + 8], 2) for j in range(0, len(bits), 8)]


def coco_text(counts):
    """Compress run lengths as COCO does: five bits a letter, lengths as changes from the last but one."""
    counts, letters = list(counts), []
    for k, count in enumerate(counts):
        value = count - counts[k - 2] if k > 2 else count
        while True:
            bits = value & 0x1F
            value >>= 5
            more = value != (-1 if bits & 0x10 else 0)
            letters.append(chr(bits + (0x20 if more else 0) + 48))
            if not more:
                break
    return "".join(letters)


def test_masks_against_pixels():
    rng = np.random.default_rng(0)
    for _ in range(40):
        height, width = rng.integers(1, 9, 2)
        mask = rng.random((height, width)) < rng.random()
        flat = mask.ravel(order="F")
        edges = np.flatnonzero(np.diff(np.concatenate([[False], flat])) != 0)
        counts = np.diff(np.concatenate([[0], edges, [flat.size]])).tolist()
        y, x = np.mgrid[:height, :width]
        for read in (
            coco_mask(counts, height, width),
            coco_mask(coco_text(counts), height, width),
            brush_mask(brush_bytes(mask, rng), height, width),
        ):
            assert (unpack(read) == mask).all() and read.area == mask.sum()
            assert (read.contains(x.ravel() + 0.5, y.ravel() + 0.5) == mask.ravel()).all()
            box = read.box()
            if mask.any():
                rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
                inner = (columns[0], rows[0], columns[-1] - columns[0] + 1, rows[-1] - rows[0] + 1)
                assert all(
                    box[k] <= inner[k] and box[k] + box[k + 2] >= inner[k] + inner[k + 2] for k in (0, 1)
                )
                across = 0 if read.by_column else 1  # exact across the runs; along them it may be all
                assert (box[across], box[across + 2]) == (inner[across], inner[across + 2])
            else:
                assert box == (0, 0, 0, 0)


# ---------------------------------------------------------------------- slides


def feature(properties, geometry=None):
    square = {"type": "Polygon", "coordinates": [[[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]]]}
    return {"type": "Feature", "geometry": geometry or square, "properties": properties}


def test_qupath(tmp_path):
    hole = [[[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]], [[2, 2], [4, 2], [4, 4], [2, 4], [2, 2]]]
    features = [
        feature({"objectType": "tile", "classification": {"name": "Tumor", "color": [200, 0, 0]}}),
        feature({"classification": {"names": ["A", "B"], "color": [1, 2, 3]}}),
        feature({"classification": "Plain"}, {"type": "Polygon", "coordinates": hole}),
        feature(
            {"classification": {"name": "Old", "colorRGB": -3670016}},
            {"type": "Point", "coordinates": [3, 4]},
        ),
        feature({"objectType": "annotation"}),
        feature({"classification": "Two"}, {"type": "MultiPolygon", "coordinates": [hole, hole]}),
        feature({"classification": "Line"}, {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}),
    ]
    text = json.dumps({"type": "FeatureCollection", "features": features})
    path = tmp_path / "s.geojson"
    path.write_text(
        text.replace('"objectType"', '"metadata": {}, "metadata": {}, "objectType"')
    )  # as QuPath does
    found = read_labels(path, ["s.svs"], "slide")
    assert [s.label for s in found.spans] == ["Tumor", "A", "B", "Plain", "Old", "Two"]
    assert found.spans[0].outline is None and found.spans[0].width == 8
    assert area(found.spans[3].outline) == 64 - 4 and found.spans[4].width == 0
    assert not contains(found.spans[3].outline, np.array([3.0]), np.array([3.0]))[0]
    (tmp_path / "z.geojson.gz").write_bytes(gzip.compress(json.dumps(features).encode()))
    assert read_labels(tmp_path / "z.geojson.gz", ["z.svs"], "slide").label_names == found.label_names


def test_asap(tmp_path):
    def ring(group, points, kind="Polygon"):
        inner = "".join(
            f'<Coordinate Order="{k}" X="{x}" Y="{y}"/>' for k, (x, y) in reversed(list(enumerate(points)))
        )
        about = f'Name="n" Type="{kind}" PartOfGroup="{group}"'
        return f"<Annotation {about}><Coordinates>{inner}</Coordinates></Annotation>"

    square, hole = [(0, 0), (8, 0), (8, 8), (0, 8)], [(2, 2), (4, 2), (4, 4), (2, 4)]
    body = ring("Tumor", square) + ring("Exclusion", hole) + ring("Cell", [(1, 1)], "Dot")
    text = f"<ASAP_Annotations><Annotations>{body}</Annotations></ASAP_Annotations>"
    found = read_labels(put(tmp_path, "s.xml", text), ["s.tif"], "slide")
    point, tumour = found.spans
    assert (tumour.label, area(tumour.outline)) == ("Tumor", 60) and point.label == "Cell"


def test_voc(tmp_path):
    box = "<bndbox><ymin>2</ymin><xmin>1</xmin><xmax>4.5</xmax><ymax>6</ymax></bndbox>"
    text = f"<annotation><filename>p.jpg</filename><object><name>cat</name>{box}</object></annotation>"
    put(tmp_path, "v/p.xml", text)
    put(tmp_path, "v/q.xml", "<annotation><filename>q.jpg</filename></annotation>")
    found = read_labels(tmp_path / "v", ["p.jpg", "q.jpg"], "image")
    (span,) = found.spans
    assert (span.x, span.y, span.width, span.height) == (1, 2, 3.5, 4) and found.bag_labels["q.jpg"] == []
    with pytest.raises(DataError, match="DOCTYPE"):
        bomb = '<!DOCTYPE x [<!ENTITY a "b">]><annotation>&a;</annotation>'
        read_labels(put(tmp_path, "w.xml", bomb), ["w.jpg"], "image")


def test_via(tmp_path):
    shapes = [
        ({"name": "rect", "x": 1, "y": 2, "width": 3, "height": 4}, {"label": "cat"}),
        ({"name": "circle", "cx": 5, "cy": 5, "r": 2}, {"label": {"dog": True, "cow": False, "owl": True}}),
        ({"name": "polygon", "all_points_x": [0, 4, 4], "all_points_y": [0, 0, 4]}, {"label": "owl"}),
    ]
    regions = [{"shape_attributes": shape, "region_attributes": about} for shape, about in shapes]
    one = {"filename": "p.jpg", "size": -1, "regions": regions, "file_attributes": {"labels": "indoors"}}
    for value in (
        {"_via_img_metadata": {"p.jpg-1": one}, "_via_settings": {}},
        {"p.jpg-1": {**one, "regions": dict(enumerate(regions))}},
    ):
        found = read_labels(put(tmp_path, "via.json", value), ["p.jpg"], "image")
        assert [s.label for s in found.spans] == ["cat", "dog", "owl", "owl"]
        assert found.bag_labels == {"p.jpg": ["cat", "dog", "indoors", "owl"]}

    def quoted(value):
        return '"' + json.dumps(value).replace('"', '""') + '"'

    head = (
        "filename,file_size,file_attributes,region_count,region_id,region_shape_attributes,region_attributes"
    )
    rows = [f"p.jpg,9,{quoted({})},3,{k},{quoted(s)},{quoted(a)}" for k, (s, a) in enumerate(shapes)]
    rows.append('q.jpg,9,"{}",0,0,"{}","{}"')
    found = read_labels(put(tmp_path, "via.csv", "\n".join([head, *rows])), ["p.jpg", "q.jpg"], "image")
    assert [s.label for s in found.spans] == ["cat", "dog", "owl", "owl"] and found.bag_labels["q.jpg"] == []


# ---------------------------------------------------------------------- text


def test_json_lines(tmp_path):
    lines = [
        {"file": "a.txt", "text": "Ann lives", "label": [[0, 3, "PER"]]},
        {
            "id": "b",
            "text": "x y",
            "entities": [{"id": 1, "start_offset": 0, "end_offset": 1, "label": "PER"}],
        },
        {"file": "c.txt", "text": "x", "label": ["sport", "news"]},
        {"file": "d.txt", "text": "x", "label": []},
    ]
    path = put(tmp_path, "d.jsonl", "\n".join(map(json.dumps, lines)))
    found = read_labels(path, ["a.txt", "b.txt", "c.txt", "d.txt", "e.txt"], "text")
    assert found.bag_labels == {"a.txt": ["PER"], "b.txt": ["PER"], "c.txt": ["news", "sport"], "d.txt": []}
    assert [(s.start_char, s.end_char) for s in found.spans] == [(0, 3), (0, 1)]
    lines = [
        {
            "text": "Ann",
            "spans": [{"start": 0, "end": 3, "label": "PER"}],
            "answer": "accept",
            "meta": {"file": "a.txt"},
        },
        {"text": "x", "accept": ["sport"], "answer": "accept", "meta": {"file": "b.txt"}},
        {"text": "x", "label": "spam", "answer": "reject", "meta": {"file": "c.txt"}},
    ]
    path = put(tmp_path, "p.jsonl", "\n".join(map(json.dumps, lines)))
    found = read_labels(path, ["a.txt", "b.txt", "c.txt"], "text")
    assert found.bag_labels == {"a.txt": ["PER"], "b.txt": ["sport"]} and "Prodigy" in found.said
    path = put(tmp_path, "m.json", {"a.txt": ["x", "y"], "b.txt": "z", "c.txt": []})
    assert read_labels(path, ["a.txt", "b.txt", "c.txt"]).bag_labels == {
        "a.txt": ["x", "y"],
        "b.txt": ["z"],
        "c.txt": [],
    }
    with pytest.raises(DataError, match=r"d.jsonl, line 2: label\[0\]: expected \[start, end, label\]"):
        read_labels(
            put(tmp_path, "d.jsonl", '{"file": "a.txt", "label": []}\n{"file": "a", "label": [[0, 3]]}'),
            ["a.txt"],
        )
