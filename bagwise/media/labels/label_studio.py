"""Label Studio's JSON: tasks with annotations in, tasks with predictions and the matching config out.

Read: regions of sound (seconds), boxes, ellipses, polygons and brush masks (percent of the picture),
characters of texts, and choices, which are labels of the whole file; also split regions (several results
with one id) and files from before 1.0 (``completions``). Predictions count only if no task of the file has
annotations.

Written: one task per file with one prediction, read-only in the tool, and ``labels.xml``: an import fails
if one region names a label or a control that the config does not have. Scores stand inside ``value`` and
beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

from bagwise.media.labels._parts import Node, check_order, is_label, plain_name, polygon
from bagwise.media.labels.picture_tools import brush_mask
from bagwise.media.labels.span import Notes, Span, box_corners, ellipse, outlined, point_at

_UPLOAD = re.compile(r"^[0-9a-f]{8}-(?=.)")
_NAMES = ("file", "filename", "file_name", "path", "audio", "image", "img", "slide", "video", "url", "source")
_MOST_BYTES_OF_A_MASK = 1 << 26


def is_tasks(value: Any) -> bool:
    """Whether a JSON value is a list of tasks."""
    keys = ("annotations", "predictions", "completions")
    task = value[0] if isinstance(value, list) and value else value
    return isinstance(task, dict) and isinstance(task.get("data"), dict) and any(key in task for key in keys)


def read_tasks(path: Path, value: Any, medium: str | None = None) -> Notes:
    """What a list of tasks says."""
    tasks = list(Node(value if isinstance(value, list) else [value], path, "task").items())
    done = [(task, list(_answers(task, ("annotations", "completions")))) for task in tasks]
    notes = Notes("Label Studio annotations")
    if not any(answers for _, answers in done):
        done = [(task, list(_answers(task, ("predictions",)))) for task in tasks]
        notes.kind = "Label Studio predictions (no task has annotations)"
    for task, answers in done:
        file = _file(task)
        for answer in answers:
            notes.look(file)
            for value_, about in _regions(answer):
                notes.spans.extend(_spans(file, value_, about, task, medium))
    return notes


def _answers(task: Node, keys: Sequence[str]) -> Iterator[Node]:
    for key in keys:
        for answer in task.each(key):
            if isinstance(answer.value, dict) and not answer.value.get("was_cancelled"):
                yield answer


def _file(task: Node) -> str:
    """The file that a task is about, without what an upload puts before its name."""
    data = task["data"]
    for key in (*_NAMES, *(key for key in data._expect(dict, "an object") if key not in _NAMES)):
        value = data.value.get(key)
        if isinstance(value, str) and 0 < len(value) < 4096 and "\n" not in value and key != "text":
            name = plain_name(value)
            folder, slash, last = name.rpartition("/")
            return folder + slash + _UPLOAD.sub("", last) if "upload" in folder else name
    for key in ("file_upload", "id"):
        value = task.value.get(key)
        if isinstance(value, (str, int)) and value != "":
            return _UPLOAD.sub("", str(value))
    raise task.wrong("names no file; give it as data.file, or as the address of the sound or picture")


def _regions(answer: Node) -> Iterator[tuple[dict[str, Node], Node]]:
    """Values of the regions, those of results with one id together, and one result of each for its sizes."""
    by_id: dict[str, tuple[dict[str, Node], Node]] = {}
    for k, result in enumerate(answer["result"].items()):
        if result.get("value") is None:
            continue  # a relation between regions
        key = str(result.value.get("id", f"#{k}"))
        value, _ = by_id.setdefault(key, ({}, result))
        value.update({name: node for name, node in result["value"].pairs() if node.value is not None})
        if result.get("score") is not None:
            value.setdefault("score", result["score"])
    yield from by_id.values()


def _spans(
    file: str, value: Mapping[str, Node], result: Node, task: Node, medium: str | None
) -> Iterator[Span]:
    labels = [
        label.text() for name, node in value.items() if name.endswith("labels") for label in node.items()
    ]
    if "choices" in value:
        chosen = value["choices"]
        labels += [chosen.text()] if isinstance(chosen.value, str) else [c.text() for c in chosen.items()]
    if "taxonomy" in value:
        labels += [" / ".join(step.text() for step in way.items()) for way in value["taxonomy"].items()]
    score = None
    if "score" in value and isinstance(value["score"].value, (int, float)):
        score = value["score"].number()
    place = _place(value, result, task, medium) if labels else {}
    for label in dict.fromkeys(labels):
        if is_label(label):
            yield Span(file, label, score=score, **place)


def _place(value: Mapping[str, Node], result: Node, task: Node, medium: str | None) -> dict[str, Any]:
    if "rle" in value:
        return _brush(value, result)
    if "points" in value:
        points = value["points"].points() * _percent(result)
        return outlined([polygon(points, value["points"])])
    if "x" in value and "y" in value:
        return _shape(value, result)
    if "globalOffsets" in value:
        offsets = value["globalOffsets"]
        return _characters(offsets["start"], offsets["end"], None, None)
    if "start" in value and "end" in value:
        text = task["data"].value.get("text")
        if medium == "text" or (medium is None and isinstance(text, str)):
            return _characters(value["start"], value["end"], text, value.get("text"))
        start, end = value["start"].number(), value["end"].number()
        check_order(start, end, value["start"].where, value["start"].path)
        return {"start": start, "end": end}
    return {}


def _percent(result: Node) -> np.ndarray:
    """Pixels in one percent of the width and of the height."""
    sizes = [result[name].number() for name in ("original_width", "original_height")]
    if min(sizes) <= 0:
        raise result.wrong("original_width and original_height must be positive")
    return np.array(sizes) / 100


def _shape(value: Mapping[str, Node], result: Node) -> dict[str, Any]:
    sx, sy = _percent(result)
    x, y = value["x"].number() * sx, value["y"].number() * sy
    turn = value["rotation"].number() if "rotation" in value else 0.0
    if "radiusX" in value and "radiusY" in value:
        return outlined(ellipse(x, y, value["radiusX"].number() * sx, value["radiusY"].number() * sy, turn))
    if "width" not in value or "height" not in value:
        return point_at(x, y)
    width, height = value["width"].number() * sx, value["height"].number() * sy
    if min(width, height) < 0:
        raise result.wrong("a box with a negative side")
    if turn % 360 == 0 or "keypointlabels" in value:
        return {"x": x, "y": y, "width": width, "height": height}
    angle = np.deg2rad(turn)
    turned = box_corners(0, 0, width, height) @ np.array(
        [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    )
    return outlined([[turned + [x, y]]])


def _brush(value: Mapping[str, Node], result: Node) -> dict[str, Any]:
    node = value["rle"]
    numbers = node._expect(list, "a list of bytes")
    if len(numbers) > _MOST_BYTES_OF_A_MASK:
        raise node.wrong("a mask of that many bytes cannot be")
    width, height = (int(result[name].number()) for name in ("original_width", "original_height"))
    try:
        mask = brush_mask(numbers, height, width)
    except ValueError as error:
        raise node.wrong(str(error)) from None
    return outlined(mask)


def _characters(start: Node, end: Node, text: Any, quoted: Node | None) -> dict[str, Any]:
    """Characters of a span; the tool counts UTF-16 units, and some old files include the last."""
    first, last = int(start.number()), int(end.number())
    check_order(first, last, start.where, start.path)
    if isinstance(text, str):
        units = text.encode("utf-16-le", "surrogatepass")
        if quoted is not None and isinstance(quoted.value, str):
            longer = units[2 * first : 2 * last + 2].decode("utf-16-le", "replace")
            if longer == quoted.value and len(quoted.value) > 0:
                last += 1
        first, last = (
            len(units[: 2 * max(place, 0)].decode("utf-16-le", "replace")) for place in (first, last)
        )
    return {"start_char": first, "end_char": last}


def utf16(text: str, place: int) -> int:
    """Where a character stands in the tool's counting, in which an emoji is two."""
    return len(text[:place].encode("utf-16-le", "surrogatepass")) // 2


# ---------------------------------------------------------------------- out


def config(medium: str, names: Sequence[str], *, outlines: bool = False) -> str:
    """The labelling interface that the tasks need: regions and, for the whole file, choices."""
    kind, value = {"audio": ("Audio", "audio"), "text": ("Text", "text")}.get(medium, ("Image", "image"))
    tag = "Labels" if medium in ("audio", "text") else "PolygonLabels" if outlines else "RectangleLabels"
    labels = "".join(f"    <Label value={quoteattr(name)}/>\n" for name in names)
    choices = "".join(f"    <Choice value={quoteattr(name)}/>\n" for name in names)
    return (
        f'<View>\n  <{tag} name="label" toName="{value}">\n{labels}  </{tag}>\n'
        f'  <{kind} name="{value}" value="${value}"/>\n'
        f'  <Choices name="bag" toName="{value}" choice="multiple">\n{choices}  </Choices>\n</View>\n'
    )


def task(
    file: str,
    medium: str,
    spans: Sequence[Span],
    whole: Sequence[str],
    *,
    address: str,
    size: tuple[float, float] | None = None,
    length: float | None = None,
    text: str | None = None,
) -> dict[str, Any]:
    """One task with its prediction: the places found in a file and the labels of the whole.

    ``address`` is where the tool finds the file, ``size`` that of a picture (width, height) in pixels,
    ``length`` that of a sound in seconds, ``text`` that of a document, to which the characters refer.
    """
    to = medium if medium in ("audio", "text") else "image"
    results = [_result(k, span, to, size, length, text) for k, span in enumerate(spans, 1)]
    if whole:
        control = {"id": "bag", "from_name": "bag", "to_name": to, "type": "choices"}
        results.append({**control, "value": {"choices": list(whole)}})
    data = {to: text if to == "text" else address, "file": file}
    prediction: dict[str, Any] = {"model_version": "bagwise", "result": results}
    scores = [span.score for span in spans if span.score is not None]
    if scores:
        prediction["score"] = _unit(max(scores))
    return {"data": data, "predictions": [prediction]}


def _result(k: int, span: Span, to: str, size: Any, length: float | None, text: str | None) -> dict[str, Any]:
    value: dict[str, Any]
    more: dict[str, Any] = {}
    if to == "audio":
        kind, value = "labels", {"start": span.start, "end": span.end, "channel": 0}
        more = {} if length is None else {"original_length": length}
    elif to == "text":
        assert text is not None
        kind, (first, last) = "labels", span.characters
        value = {"start": utf16(text, first), "end": utf16(text, last), "text": text[first:last]}
    else:
        kind, value = _picture_value(span, size)
        more = {"original_width": int(size[0]), "original_height": int(size[1]), "image_rotation": 0}
    value[kind] = [span.label]
    result = {"id": f"r{k}", "from_name": "label", "to_name": to, "type": kind, "value": value, **more}
    if span.score is not None:
        result["score"] = value["score"] = _unit(span.score)
    return result


def _picture_value(span: Span, size: Any) -> tuple[str, dict[str, Any]]:
    width, height = size
    if isinstance(span.outline, list):
        points = span.outline[0][0] / [width, height] * 100
        return "polygonlabels", {"points": np.clip(points, 0, 100).round(4).tolist(), "closed": True}
    left, top, wide, high = span.box
    x, y = np.clip([100 * left / width, 100 * top / height], 0, 100)
    far_x = min(100 * (left + wide) / width, 100.0)
    far_y = min(100 * (top + high) / height, 100.0)
    box = {"x": float(x), "y": float(y), "width": float(far_x - x), "height": float(far_y - y), "rotation": 0}
    return "rectanglelabels", box


def _unit(score: float) -> float:
    """A score that the import accepts, between 0 and 1."""
    return round(min(max(float(score), 0.0), 1.0), 6)
