"""Throw spoiled files of labels at `read_labels`; run as ``label_fuzz_worker.py SEED COUNT FOLDER``.

A process of its own, so that a crash or a huge allocation is seen from outside. Prints one JSON object.
"""

import copy
import io
import json
import random
import resource
import sys
import time
import traceback
import zipfile
from pathlib import Path

from bagwise.errors import BagwiseError
from bagwise.media.labels import read_labels

RAVEN = "Selection\tView\tChannel\tBegin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)"
RAVEN += "\tBegin File\tAnnotation\n"
SIZES = {"original_width": 2, "original_height": 2}
RESULT = {"from_name": "l", "to_name": "i"}
BRUSH = [0, 0, 0, 16, 57, 27, 252, 96, 17, 255, 206, 0]
SQUARE = [[[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]]]
BOX = {"x": 10, "y": 20, "width": 50, "height": 40, "rotation": 30, "rectanglelabels": ["cat"]}
JSONS = {
    "ls": [
        {
            "id": 1,
            "data": {"image": "a.wav", "text": "some words"},
            "annotations": [
                {
                    "result": [
                        {
                            **RESULT,
                            "type": "labels",
                            "value": {"start": 1, "end": 2, "text": "om", "labels": ["x"]},
                        },
                        {**RESULT, **SIZES, "type": "rectanglelabels", "value": BOX},
                        {
                            **RESULT,
                            **SIZES,
                            "type": "brushlabels",
                            "value": {"rle": BRUSH, "brushlabels": ["y"]},
                        },
                        {
                            **RESULT,
                            **SIZES,
                            "value": {"points": [[0, 0], [50, 0], [50, 99]], "polygonlabels": ["z"]},
                        },
                        {**RESULT, "type": "choices", "value": {"choices": ["w"]}},
                    ]
                }
            ],
        }
    ],
    "coco": {
        "images": [{"id": 1, "file_name": "a.wav", "width": 4, "height": 4, "labels": ["q"]}],
        "categories": [{"id": 3, "name": "cat"}],
        "annotations": [
            {
                "id": 1,
                "image_id": 1,
                "category_id": 3,
                "bbox": [0, 0, 2, 2],
                "segmentation": [[0, 0, 4, 0, 4, 4]],
            },
            {"id": 2, "image_id": 1, "category_id": 3, "segmentation": {"size": [4, 4], "counts": "5240O"}},
            {
                "id": 3,
                "image_id": 1,
                "category_id": 3,
                "segmentation": {"size": [4, 4], "counts": [5, 2, 4, 2, 3]},
            },
        ],
    },
    "a.geojson": {
        "type": "FeatureCollection",
        "features": [
            {
                "type": "Feature",
                "geometry": {"type": "Polygon", "coordinates": SQUARE, "isEllipse": True},
                "properties": {"classification": {"names": ["A", "B"], "color": [1, 2, 3]}},
            },
            {
                "type": "Feature",
                "geometry": {"type": "MultiPolygon", "coordinates": [SQUARE]},
                "properties": {"classification": "C"},
            },
        ],
    },
    "via": {
        "_via_img_metadata": {
            "a.wav-1": {
                "filename": "a.wav",
                "size": -1,
                "file_attributes": {"labels": {"x": True}},
                "regions": [
                    {
                        "shape_attributes": {
                            "name": "ellipse",
                            "cx": 1,
                            "cy": 2,
                            "rx": 3,
                            "ry": 4,
                            "theta": 1,
                        },
                        "region_attributes": {"label": "x"},
                    },
                    {
                        "shape_attributes": {
                            "name": "polygon",
                            "all_points_x": [0, 4, 4],
                            "all_points_y": [0, 0, 4],
                        },
                        "region_attributes": {"label": {"y": True}},
                    },
                ],
            }
        }
    },
    "map": {"a.wav": ["x"], "b.wav": "y"},
}
TEXTS = {
    "t.csv": "file,start,end,labels\na.wav,1,2,wren;robin\nb.wav,0:01,0:02,\"['x', 'y']\"\n",
    "flags.tsv": "file\twren\tgull\na.wav\t1\t0\nb.wav\t0\t1\n",
    "bc.csv": "filename,primary_label,secondary_labels\na.wav,x,\"['y']\"\n",
    "dcase.tsv": "filename\tonset\toffset\tevent_label\na.wav\t1\t2\tx\nb.wav\t\t\t\n",
    "birdnet.csv": "Start (s),End (s),Scientific name,Common name,Confidence,File\n"
    "0,3,T t,Wren,0.9,/me/a.wav\n",
    "a.Table.1.selections.txt": RAVEN + "1\tSpectrogram 1\t1\t1\t2\t100\t900\ta.wav\twren\n",
    "a.txt": "1.0\t2.0\twren (0.9)\n\\\t100\t900\n3\tx\n",
    "d.jsonl": '{"file": "a.wav", "label": [[0, 3, "x"], "y"]}\n'
    '{"id": "b", "spans": [{"start": 0, "end": 1, "label": "p"}]}\n',
    "voc.xml": "<annotation><filename>a.wav</filename><object><name>x</name><bndbox><xmin>1</xmin>"
    "<ymin>1</ymin>"
    "<xmax>2</xmax><ymax>3</ymax></bndbox></object></annotation>",
    "a.xml": '<ASAP_Annotations><Annotation Type="Polygon" PartOfGroup="T">'
    '<Coordinate Order="0" X="0" Y="0"/>'
    '<Coordinate Order="1" X="4" Y="0"/><Coordinate Order="2" X="4" Y="4"/></Annotation></ASAP_Annotations>',
}
STRANGE = [
    None,
    True,
    -1,
    0,
    1e308,
    float("nan"),
    10**40,
    "",
    "x",
    "\ud800",
    [],
    {},
    [[]],
    "9" * 5000,
    2**31,
    -(2**63),
]
NUMBERS = [
    b"1e999",
    b"-1",
    b"nan",
    b"inf",
    b"99999999999999999999",
    b"",
    b"0x1",
    b"1_0",
    b"1e-400",
    b"\xff",
    b"\0",
]


def sheet():
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    rows = '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="inlineStr"><is><t>labels</t></is></c></row>'
    rows += '<row r="2"><c r="A2" t="s"><v>1</v></c><c r="C2"><v>3</v></c></row>'
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as book:
        book.writestr(
            "xl/sharedStrings.xml", f'<sst xmlns="{main}"><si><t>file</t></si><si><t>a.wav</t></si></sst>'
        )
        book.writestr(
            "xl/worksheets/sheet1.xml", f'<worksheet xmlns="{main}"><sheetData>{rows}</sheetData></worksheet>'
        )
    return buffer.getvalue()


def places_in(value, found):
    """Every container with its keys."""
    if isinstance(value, dict):
        found += [(value, key) for key in value]
        for inner in value.values():
            places_in(inner, found)
    elif isinstance(value, list):
        found += [(value, key) for key in range(len(value))]
        for inner in value:
            places_in(inner, found)
    return found


def spoil_json(rng, value):
    value = json.loads(json.dumps(value))
    for _ in range(rng.choice([1, 1, 2, 5])):
        places = places_in(value, [])
        if not places:
            break
        box, key = rng.choice(places)
        if rng.random() < 0.25:
            del box[key]
        else:
            box[key] = copy.deepcopy(rng.choice(STRANGE))
    return json.dumps(value).encode("utf-8", "surrogatepass")


def spoil_bytes(rng, content):
    content = bytearray(content)
    for _ in range(rng.choice([1, 2, 8])):
        if not content:
            break
        k, what = rng.randrange(len(content)), rng.randrange(6)
        if what == 0:
            content[k] = rng.randrange(256)
        elif what == 1:
            del content[k:]
        elif what == 2:
            del content[k : k + rng.randrange(1, 9)]
        elif what == 3:
            content[k:k] = content[max(0, k - 20) : k] * rng.choice([1, 50])
        elif what == 4:
            content[k : k + 1] = rng.choice(NUMBERS)
        else:
            content[k:k] = rng.choice(
                [b"\t", b",", b"\n", b'"', b"\r", b"[" * 3000, b"<" * 9, b"\xef\xbb\xbf"]
            )
    return bytes(content)


def main(seed, count, folder):
    rng = random.Random(seed)
    report = {"read": 0, "refused": 0, "wrong": [], "slowest": 0.0}
    samples = {**{name: text.encode() for name, text in TEXTS.items()}, "s.xlsx": sheet()}
    base = None
    for k in range(count):
        if rng.random() < 0.5:
            name = rng.choice(list(JSONS))
            content = spoil_json(rng, JSONS[name])
            content = spoil_bytes(rng, content) if rng.random() < 0.2 else content
            name = name if "." in name else f"{name}.json"
        else:
            name = rng.choice(list(samples))
            content = spoil_bytes(rng, samples[name])
        path = folder / name
        path.unlink(missing_ok=True)  # to write over a file may wait for the disk
        path.write_bytes(content)
        start = time.perf_counter()
        try:
            found = read_labels(
                path, ["a.wav", "b.wav"], rng.choice(["audio", "image", "text", "slide", None])
            )
            assert all(isinstance(label, str) for labels in found.bag_labels.values() for label in labels)
            report["read"] += 1
        except BagwiseError as error:
            report["refused"] += 1
            if "\n" in str(error) or len(str(error)) > 600 or name not in str(error):
                report["wrong"].append(f"{name}: unclear message {str(error)[:300]!r}")
        except Exception:
            report["wrong"].append(f"{name} {content[:300]!r}\n{traceback.format_exc()[-1500:]}")
        report["slowest"] = max(report["slowest"], time.perf_counter() - start)
        if k == 50:
            base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report["growth_mib"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - (base or 0)) / 1024
    print(json.dumps(report))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
