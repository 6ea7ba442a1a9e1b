"""Files for tools: each against the rules of its importer, as documented, and read back."""

import json
import re
import uuid
from xml.etree import ElementTree

import numpy as np
import pytest

from bagwise import Bags
from bagwise.errors import BagwiseError, DataError
from bagwise.media.labels import Found, Options, instance_labels, read_labels, write_answers

NAMES = ["robin", "wren", 'o"<&dd, é: one']


def found(file, places, labels, whole=None, seed=0, path=None):
    labels = np.array(labels, dtype=int)
    rng = np.random.default_rng(seed)
    values = rng.random((len(labels), len(NAMES)))
    whole = [NAMES[k] for k in sorted(set(labels[labels >= 0]))] if whole is None else whole
    return Found(file, {k: np.asarray(v) for k, v in places.items()}, labels, values, whole, path)


def sound(file="x/a.wav", labels=(0, 0, -1, 1), step=3.0):
    start = np.arange(len(labels)) * step
    band = np.zeros(len(labels)), np.full(len(labels), 12000.0)
    return found(file, {"start": start, "end": start + 3, "low": band[0], "high": band[1]}, labels)


def picture(file="p.png", labels=(0, 0, 1, -1), n=2, side=16.0):
    y, x = (side * axis.ravel() for axis in np.mgrid[:n, :n])
    size = np.full(n * n, side)
    return found(file, {"x": x, "y": y, "width": size, "height": size}, labels)


def write(kind, out, answers, medium, **style):
    return write_answers(kind, out, answers, [a.file for a in answers], NAMES, medium, Options(**style))


def back(answers, out, medium):
    """Labels of parts and bags after writing, by our own readers."""
    answers = list(answers)
    labels = read_labels(out, [a.file for a in answers], medium)
    places = {k: np.concatenate([a.places[k] for a in answers]) for k in answers[0].places}
    offsets = np.cumsum([0, *(len(a.labels) for a in answers)])
    bags = Bags(np.zeros((offsets[-1], 1)), offsets, bag_ids=[a.file for a in answers], instance_info=places)
    return labels, instance_labels(labels.spans, bags, NAMES)


# ---------------------------------------------------------------------- sound


def check_raven(path, file):
    lines = path.read_bytes().decode("utf-8").split("\n")
    assert lines.pop() == "" and not any("\r" in line for line in lines)
    columns = lines[0].split("\t")
    standard = [
        "Selection",
        "View",
        "Channel",
        "Begin Time (s)",
        "End Time (s)",
        "Low Freq (Hz)",
        "High Freq (Hz)",
    ]
    assert columns[:7] == standard and len(set(columns)) == len(columns)
    rows = [dict(zip(columns, line.split("\t"), strict=True)) for line in lines[1:]]
    assert [row["Selection"] for row in rows] == [str(k + 1) for k in range(len(rows))]
    for row in rows:
        assert row["View"] == "Spectrogram 1" and row["Channel"] == "1" and row["Begin File"] == file
        assert 0 <= float(row["Begin Time (s)"]) < float(row["End Time (s)"])
        assert 0 <= float(row["Low Freq (Hz)"]) < float(row["High Freq (Hz)"])
        assert row["File Offset (s)"] == row["Begin Time (s)"] and row["Annotation"]
        assert 0 <= float(row["Confidence"]) <= 1
    return rows


def test_raven(tmp_path):
    answers = [sound(), sound("b.wav", (-1, -1)), sound("c.wav", (1, 0, 1))]
    done = write("raven", tmp_path, answers, "audio")
    assert done["places"] == 2 + 0 + 3 and len(done["files"]) == 3
    rows = check_raven(tmp_path / "x/a.Table.1.selections.txt", "a.wav")
    assert [(r["Begin Time (s)"], r["End Time (s)"], r["Annotation"]) for r in rows] == [
        ("0.000000", "6.000000", "robin"),
        ("9.000000", "12.000000", "wren"),
    ]
    assert float(rows[0]["Confidence"]) == pytest.approx(answers[0].values[:2, 0].max(), abs=1e-4)
    assert check_raven(tmp_path / "b.Table.1.selections.txt", "b.wav") == []
    labels, parts = back(answers, tmp_path, "audio")
    assert parts.tolist() == np.concatenate([a.labels for a in answers]).tolist()
    assert labels.bag_labels == {a.file: a.whole for a in answers} and not labels.files_without


def test_raven_without_joining_and_with_strange_labels(tmp_path):
    answers = [sound(labels=(0, 0, 2))]
    assert write("raven", tmp_path, answers, "audio", merge=False)["places"] == 3
    rows = check_raven(tmp_path / "x/a.Table.1.selections.txt", "a.wav")
    assert rows[2]["Annotation"] == NAMES[2]
    assert back(answers, tmp_path, "audio")[1].tolist() == [0, 0, 2]


def test_overlapping_windows_are_one_selection(tmp_path):
    write("raven", tmp_path, [sound(labels=(0, 1, 0, -1, 0), step=1.0)], "audio")
    rows = check_raven(tmp_path / "x/a.Table.1.selections.txt", "a.wav")
    times = [(float(r["Begin Time (s)"]), float(r["End Time (s)"]), r["Annotation"]) for r in rows]
    assert times == [(0, 7, "robin"), (1, 4, "wren")]  # 0-3, 2-5 and 4-7 overlap, though another lies between


def check_audacity(path):
    """Import as LabelTrack does: tokens by tab, a band on a line that begins with a backslash."""
    labels = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        tokens = line.split("\t")
        if tokens[0] == "\\":
            low, high = map(float, tokens[1:])
            assert labels and 0 <= low <= high
            labels[-1] += (low, high)
        elif line:
            assert re.fullmatch(r"\d+\.\d{6}", tokens[0]) and re.fullmatch(r"\d+\.\d{6}", tokens[1])
            assert len(tokens) == 3
            labels.append((float(tokens[0]), float(tokens[1]), tokens[2]))
    return labels


def test_audacity(tmp_path):
    answers = [sound(), sound("b.wav", (-1,))]
    write("audacity", tmp_path, answers, "audio")
    assert check_audacity(tmp_path / "x/a.txt") == [(0, 6, "robin"), (9, 12, "wren")]
    assert (tmp_path / "b.txt").read_text() == ""
    labels, parts = back(answers, tmp_path, "audio")
    assert parts.tolist() == [0, 0, -1, 1, -1] and labels.bag_labels["b.wav"] == []
    calls = found(
        "c.wav", {"start": [0.0, 1.0], "end": [0.5, 1.5], "low": [2e3, 3e3], "high": [4e3, 5e3]}, [0, 1]
    )
    write("audacity", tmp_path / "calls", [calls], "audio", scores=True)
    first, second = check_audacity(tmp_path / "calls/c.txt")
    assert first[3:] == (2000, 4000) and second[2] == f"wren ({calls.values[1, 1]:.2f})"
    spans = back([calls], tmp_path / "calls", "audio")[0].spans
    assert [(s.label, s.low, s.high) for s in spans] == [("robin", 2000, 4000), ("wren", 3000, 5000)]
    assert spans[0].score == pytest.approx(calls.values[0, 0], abs=0.006)


# ---------------------------------------------------------------------- Label Studio


def check_label_studio(tasks, config):
    """The rules of its import: names, types and labels as in the config, scores and boxes within bounds."""
    root = ElementTree.fromstring(config)
    controls = {node.get("name"): node for node in root.iter() if node.get("toName")}
    sources = [node for node in root.iter() if node.get("value", "")[:1] == "$"]
    objects = {node.get("name"): node.get("value")[1:] for node in sources}
    ids = set()
    for task in tasks:
        assert set(objects.values()) <= set(task["data"])
        for prediction in task["predictions"]:
            assert isinstance(prediction["result"], list) and isinstance(prediction["model_version"], str)
            assert 0 <= prediction.get("score", 0) <= 1
            for region in prediction["result"]:
                control = controls[region["from_name"]]
                assert control.get("toName") == region["to_name"] and region["to_name"] in objects
                assert control.tag.lower() == region["type"]
                known = {node.get("value") for node in control}
                assert region["value"][region["type"]] and set(region["value"][region["type"]]) <= known
                value = region["value"]
                if region["type"] == "rectanglelabels":
                    assert all(0 <= value[side] <= 100 for side in ("x", "y", "width", "height"))
                    assert (
                        value["x"] + value["width"] <= 100 + 1e-9
                        and value["y"] + value["height"] <= 100 + 1e-9
                    )
                    assert region["original_width"] > 0 < region["original_height"]
                if "score" in region:
                    assert 0 <= region["score"] <= 1 and region["score"] == value["score"]
                ids.add((id(task), region["id"]))
        assert len({r["id"] for r in task["predictions"][0]["result"]}) == len(
            task["predictions"][0]["result"]
        )


@pytest.mark.parametrize("medium", ["audio", "image", "outline", "text"])
def test_label_studio(tmp_path, medium):
    if medium == "audio":
        answers = [sound(labels=(0, 0, -1, 2)), sound("b.wav", (-1,))]
    elif medium == "text":
        text = "First 😀 one. Second. Third one."
        starts, ends = [0, 13, 21], [12, 20, 31]
        pieces = np.array([text[a:b] for a, b in zip(starts, ends)], dtype=object)
        answers = [found("t.txt", {"start_char": starts, "end_char": ends, "text": pieces}, [0, -1, 2])]
    else:
        answers = [picture(), picture("q.png", (-1, -1, -1, -1))]
        if medium == "outline":
            rings = ["0,0 16,0 16,16", "16,0 32,0 32,16", "0,16 16,16 16,32", "16,16 32,16 32,32"]
            answers = [
                a._replace(places={**a.places, "polygon": np.array(rings, dtype=object)}) for a in answers
            ]
    kind = "image" if medium == "outline" else medium
    done = write("label-studio", tmp_path, answers, kind)
    tasks = json.loads((tmp_path / "label_studio.json").read_text())
    check_label_studio(tasks, (tmp_path / "labels.xml").read_text())
    assert len(tasks) == len(answers)
    assert tasks[0]["data"]["file"] == answers[0].file
    assert bool(done["notes"]) == (medium != "audio")  # sizes and texts came from the parts
    labels, parts = back(answers, tmp_path / "label_studio.json", kind)
    assert parts.tolist() == np.concatenate([a.labels for a in answers]).tolist()
    assert labels.bag_labels == {a.file: sorted(a.whole) for a in answers}


def test_label_studio_in_one_file_with_an_address(tmp_path):
    write("label-studio", tmp_path / "ls.json", [sound("a b.wav")], "audio", address="https://host/")
    (task,) = json.loads((tmp_path / "ls.json").read_text())
    assert task["data"]["audio"] == "https://host/a%20b.wav" and (tmp_path / "ls.xml").exists()


# ---------------------------------------------------------------------- COCO


def check_coco(data, results):
    images = {image["id"]: image for image in data["images"]}
    categories = {category["id"] for category in data["categories"]}
    ids = [note["id"] for note in data["annotations"]]
    assert (
        len(images) == len(data["images"]) and len(set(ids)) == len(ids) and 0 not in ids and "info" in data
    )
    for note in data["annotations"]:
        image = images[note["image_id"]]
        x, y, width, height = note["bbox"]
        assert x >= 0 and y >= 0 and x + width <= image["width"] and y + height <= image["height"]
        assert 0 < note["area"] <= width * height + 1e-6 and note["iscrowd"] == 0
        assert note["category_id"] in categories
        for ring in note["segmentation"]:
            assert len(ring) >= 6 and len(ring) % 2 == 0
            assert x <= min(ring[::2]) and max(ring[::2]) <= x + width
    # what COCO.loadRes asks for: a list, every image known, entries alike, never empty
    assert isinstance(results, list) and results
    assert {entry["image_id"] for entry in results} <= set(images)
    assert all(set(entry) == {"image_id", "category_id", "bbox", "score"} for entry in results)


def test_coco(tmp_path):
    answers = [picture(), picture("q.png", (-1, 1, 1, -1)), picture("r.png", (-1,) * 4)]
    done = write("coco", tmp_path, answers, "image")
    data = json.loads((tmp_path / "coco.json").read_text())
    results = json.loads((tmp_path / "coco_results.json").read_text())
    check_coco(data, results)
    # two tiles side by side are one object; two that share a corner are two
    boxes = [(n["image_id"], n["bbox"], n["area"]) for n in data["annotations"]]
    assert boxes == [
        (1, [0, 0, 32, 16], 512),
        (1, [0, 16, 16, 16], 256),
        (2, [16, 0, 16, 16], 256),
        (2, [0, 16, 16, 16], 256),
    ]
    assert done["places"] == 4 and "taken from their parts" in done["notes"][0]
    labels, parts = back(answers, tmp_path / "coco.json", "image")
    assert parts.tolist() == np.concatenate([a.labels for a in answers]).tolist()
    assert labels.bag_labels["r.png"] == []
    done = write("coco", tmp_path / "none", [picture(labels=(-1,) * 4)], "image")
    assert not (tmp_path / "none/coco_results.json").exists() and "no results" in done["notes"][-1]


def test_sizes_come_from_the_pictures(tmp_path):
    image = pytest.importorskip("PIL.Image")
    exif = image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    image.new("RGB", (50, 40)).save(tmp_path / "p.jpg", exif=exif)
    done = write(
        "coco", tmp_path / "c.json", [picture("p.jpg")._replace(path=str(tmp_path / "p.jpg"))], "image"
    )
    assert not done["notes"]
    (size,) = json.loads((tmp_path / "c.json").read_text())["images"]
    assert (size["width"], size["height"]) == (40, 50)


# ---------------------------------------------------------------------- QuPath


def check_geojson(data):
    assert data["type"] == "FeatureCollection"
    names = {tuple(feature["properties"]["measurements"]) for feature in data["features"]}
    assert len(names) == 1
    for feature in data["features"]:
        uuid.UUID(feature["id"])
        properties = feature["properties"]
        assert feature["type"] == "Feature" and properties["objectType"] == "tile"
        (ring,) = feature["geometry"]["coordinates"]
        assert feature["geometry"]["type"] == "Polygon" and ring[0] == ring[-1] and len(ring) >= 4
        assert all(isinstance(v, float) and np.isfinite(v) for v in properties["measurements"].values())
        if "classification" in properties:
            about = properties["classification"]
            assert ":" not in about["name"] and len(about["color"]) == 3
            assert all(isinstance(v, int) and 0 <= v <= 255 for v in about["color"])


def test_geojson(tmp_path):
    answers = [picture("s1.svs", (0, 1, 2, -1)), picture("deep/s2.svs", (-1,) * 4)]
    done = write("geojson", tmp_path, answers, "slide")
    assert done["places"] == 3
    for name in ("s1", "deep/s2"):
        data = json.loads((tmp_path / f"{name}.geojson").read_text())
        check_geojson(data)
        assert len(data["features"]) == 4
    labels = read_labels(tmp_path, ["s1.svs", "deep/s2.svs"], "slide")
    assert [s.label for s in labels.spans] == ["robin", "wren", NAMES[2].replace(":", " -")]
    assert labels.bag_labels["deep/s2.svs"] == []


# ---------------------------------------------------------------------- refusals


def test_refusals(tmp_path):
    with pytest.raises(
        BagwiseError, match=r"raven is for audio, these files are image; choose csv, label-studio, coco"
    ):
        write("raven", tmp_path, [picture()], "image")
    with pytest.raises(BagwiseError, match="written as csv, raven"):
        write("word", tmp_path, [picture()], "image")
    with pytest.raises(DataError, match="where in files the parts lie"):
        write("raven", tmp_path, [picture()], None)
    with pytest.raises(DataError, match="give a folder"):
        write("raven", tmp_path / "a.csv", [sound()], "audio")
    (tmp_path / "plain").write_text("")
    with pytest.raises(DataError, match="is a file"):
        write("coco", tmp_path / "plain", [picture()], "image")


def test_names_never_leave_the_folder(tmp_path):
    write("audacity", tmp_path / "in", [sound("../../evil.wav"), sound("/abs.wav")], "audio")
    assert sorted(p.name for p in (tmp_path / "in").rglob("*.txt")) == ["abs.txt", "evil.txt"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in"]
    write("audacity", tmp_path / "two", [sound("a.wav"), sound("A.mp3")], "audio")
    assert len(list((tmp_path / "two").iterdir())) == 2
