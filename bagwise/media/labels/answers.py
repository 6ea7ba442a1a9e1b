"""What a model found in files, as spans: one per labelled part, neighbours joined where a tool wants it.

Parts are joined if they carry the same label and touch or overlap: windows of sound with the same band,
sentences that follow each other, tiles of a picture. The whole is as sure as its surest part. Here is also
what exports need to know of the original files: None where they are not at hand or cannot be read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from bagwise.io._source import read_bytes
from bagwise.media.labels.span import Rings, Span, box_corners, outlined, parse_points
from bagwise.media.text.decode import decode, strip_html

_TOUCH = 1e-6  # seconds or pixels between parts that still touch
_ORIENTATION, _TURNED = 0x0112, (5, 6, 7, 8)  # the tag of EXIF, and when it exchanges width and height


class Found(NamedTuple):
    """Answers about one file.

    Parameters
    ----------
    file : str
        Its name: the id of the bag.
    places : mapping of str to array
        Where its parts lie, columns of `bagwise.media.places`.
    labels : int array of shape (n_parts,)
        Label index of each part, -1 for none.
    values : array of shape (n_parts, n_labels)
        Probability of every label for every part, between 0 and 1.
    whole : list of str
        Labels of the whole file.
    path : str or None
        Where the file lies, if known.
    """

    file: str
    places: Mapping[str, np.ndarray]
    labels: np.ndarray
    values: np.ndarray
    whole: list[str]
    path: str | None = None


def spans_of(found: Found, names: Sequence[str], medium: str, *, merge: bool) -> list[Span]:
    """Labelled parts of a file in their order, neighbours with the same label as one if ``merge``."""
    rows = np.flatnonzero(found.labels >= 0)
    if medium == "audio":
        rows = rows[np.argsort(found.places["start"][rows], kind="stable")]
    elif medium == "text":
        rows = rows[np.argsort(found.places["start_char"][rows], kind="stable")]
    spans = [_span(found, int(k), names, medium) for k in rows]
    if not merge:
        return spans
    if medium == "audio":
        return _join_times(spans)
    if medium == "text":
        return _join_texts(spans, np.argsort(found.places["start_char"], kind="stable"), rows)
    return _join_boxes(spans)


def _span(found: Found, k: int, names: Sequence[str], medium: str) -> Span:
    def at(name: str) -> Any:
        value = found.places[name][k]
        return value.item() if hasattr(value, "item") else value

    label = int(found.labels[k])
    about: dict[str, Any] = {"label": names[label], "score": float(found.values[k, label])}
    about["file"] = found.file
    if medium == "audio":
        band: dict[str, Any] = {}
        if "low" in found.places and at("high") > at("low"):
            band = {"low": at("low"), "high": at("high")}
        return Span(**about, start=at("start"), end=at("end"), **band)
    if medium == "text":
        return Span(**about, start_char=int(at("start_char")), end_char=int(at("end_char")))
    outline = None
    if "polygon" in found.places:
        ring = parse_points(str(at("polygon")))
        outline = None if ring is None else [[ring]]
    box: dict[str, Any] = {name: float(at(name)) for name in ("x", "y", "width", "height")}
    return Span(**about, **box, outline=outline)


# ---------------------------------------------------------------------- joining neighbours


def _surest(spans: Iterable[Span]) -> float | None:
    return max((span.score for span in spans if span.score is not None), default=None)


def _join_times(spans: list[Span]) -> list[Span]:
    """Windows that touch, per label and band; in the order in which they begin."""
    joined: list[Span] = []
    last: dict[tuple, int] = {}
    for span in spans:
        key = (span.label, span.low, span.high)
        k = last.get(key)
        before = None if k is None else joined[k]
        if before is not None and k is not None and span.time[0] <= before.time[1] + _TOUCH:
            end = max(before.time[1], span.time[1])
            joined[k] = replace(before, end=end, score=_surest([before, span]))
        else:
            last[key] = len(joined)
            joined.append(span)
    return joined


def _join_texts(spans: list[Span], order: np.ndarray, rows: np.ndarray) -> list[Span]:
    """Pieces that follow each other without another between them."""
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    joined: list[Span] = []
    before = -2
    for span, row in zip(spans, rows):
        last = joined[-1] if joined else None
        if last is not None and last.label == span.label and rank[row] == before + 1:
            end = max(last.characters[1], span.characters[1])
            joined[-1] = replace(last, end_char=end, score=_surest([last, span]))
        else:
            joined.append(span)
        before = int(rank[row])
    return joined


def _join_boxes(spans: list[Span]) -> list[Span]:
    """Tiles that touch along an edge or overlap, per label; superpixels stay as they are."""
    joined: list[Span] = []
    for label in dict.fromkeys(span.label for span in spans):
        same = [span for span in spans if span.label == label]
        tiles = [span for span in same if span.outline is None]
        joined += [span for span in same if span.outline is not None]
        for group in _touching(np.array([[s.x, s.y, s.width, s.height] for s in tiles], dtype=float)):
            first, *others = members = [tiles[k] for k in group]
            if others:
                outline: list[Rings] = [[box_corners(*tile.box)] for tile in members]
                first = Span(first.file, first.label, **outlined(outline), score=_surest(members))
            joined.append(first)
    return joined


def _touching(boxes: np.ndarray) -> list[list[int]]:
    """Groups of boxes that hang together, each by the numbers of its boxes."""
    left, groups = list(range(len(boxes))), []
    while left:
        group, edge = [left.pop(0)], 0
        while edge < len(group) and left:
            x, y, width, height = boxes[group[edge]]
            others = boxes[left]
            across = np.minimum(x + width, others[:, 0] + others[:, 2]) - np.maximum(x, others[:, 0])
            down = np.minimum(y + height, others[:, 1] + others[:, 3]) - np.maximum(y, others[:, 1])
            # an edge in common, not a corner alone
            near = (np.minimum(across, down) >= -_TOUCH) & (np.maximum(across, down) > _TOUCH)
            group += [k for k, is_near in zip(left, near) if is_near]
            left = [k for k, is_near in zip(left, near) if not is_near]
            edge += 1
        groups.append(sorted(group))
    return groups


# ---------------------------------------------------------------------- names of files to write


def targets(files: Sequence[str], ending: str) -> Callable[[str], str]:
    """Name of the file to write for each file: stem and ending, the whole name where stems are shared.

    Examples
    --------
    >>> name = targets(["x/a.wav", "x/a.mp3", "b.wav"], ".txt")
    >>> [name(file) for file in ("x/a.wav", "x/a.mp3", "b.wav")]
    ['x/a.wav.txt', 'x/a.mp3.txt', 'b.txt']
    """
    seen: dict[str, int] = {}
    for file in files:
        bare = _bare(file).casefold()
        seen[bare] = seen.get(bare, 0) + 1

    def name(file: str) -> str:
        bare = _bare(file)
        return (bare if seen.get(bare.casefold(), 0) < 2 else _safe(file)) + ending

    return name


def _bare(file: str) -> str:
    safe = _safe(file)
    return safe[: len(safe) - len(PurePosixPath(safe).suffix)] if "#" not in file else safe


def _safe(file: str) -> str:
    """A relative path that stays inside the folder it is joined to."""
    parts = [part for part in file.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return "/".join(part.replace(":", "_") for part in parts) or "_"


# ---------------------------------------------------------------------- the original files


def picture_size(path: str | None) -> tuple[int, int] | None:
    """Width and height of the upright picture, from its header alone; None where it cannot be read."""
    try:
        from PIL import Image

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as picture:  # type: ignore[arg-type]
                width, height = picture.size
                turned = picture.getexif().get(_ORIENTATION) in _TURNED
    except Exception:  # whatever a damaged file or a missing library may say, there is another way
        return None
    return (height, width) if turned else (width, height)


def sound_length(path: str | None) -> float | None:
    """Seconds of a recording, from its header alone; None where it cannot be read."""
    about = _sound_header(path)
    return about.frames / about.samplerate if about is not None and about.frames > 0 else None


def sound_rate(path: str | None) -> float | None:
    """Samples per second of a recording; None where it cannot be read."""
    about = _sound_header(path)
    return None if about is None else float(about.samplerate)


def _sound_header(path: str | None) -> Any:
    try:
        import soundfile

        about = soundfile.info(path)
        return about if about.samplerate > 0 else None
    except Exception:
        return None


def extent(places: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """Width and height that the parts of a picture reach, at least one pixel."""
    if not len(places["x"]):
        return 1.0, 1.0
    width = float(np.max(places["x"] + places["width"]))
    height = float(np.max(places["y"] + places["height"]))
    return max(width, 1.0), max(height, 1.0)


def text_of_parts(places: Mapping[str, np.ndarray]) -> str:
    """A text put together from its parts, each at its place; what lies between them is blank.

    Examples
    --------
    >>> places = {"start_char": np.array([0, 5]), "end_char": np.array([3, 8])}
    >>> text_of_parts({**places, "text": np.array(["One", "two"])})
    'One  two'
    """
    length = int(max(places["end_char"], default=0))
    letters = [" "] * length
    for start, end, piece in zip(places["start_char"], places["end_char"], places["text"]):
        letters[int(start) : int(end)] = str(piece)[: int(end) - int(start)].ljust(int(end) - int(start))
    return "".join(letters)


def full_text(path: str | None, places: Mapping[str, np.ndarray]) -> tuple[str, bool]:
    """The decoded text to which the places refer, and whether it is the original: it must fit the parts."""
    pieces = text_of_parts(places)
    if path is None:
        return pieces, False
    try:
        text = decode(read_bytes(path, 1 << 28)).text
        for candidate in (text, strip_html(text)):
            spans = zip(places["start_char"].tolist(), places["end_char"].tolist(), places["text"])
            if all(candidate[a:b] == piece for a, b, piece in spans):
                return candidate, True
    except Exception:
        pass  # the pieces do without the original
    return pieces, False
