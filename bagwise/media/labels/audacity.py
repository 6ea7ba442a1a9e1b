r"""Audacity label tracks: ``start TAB end TAB text``, one file per sound; read and written.

A second line ``\ TAB low TAB high`` gives the band, -1 where it is open. A label has no score of its own; we
write it into the text as ``wren (0.91)`` when asked, and take it out again on reading. An empty file says
that somebody looked and found nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bagwise.errors import DataError
from bagwise.media.labels._parts import beside, check_order, is_label, number_in
from bagwise.media.labels.raven import one_line
from bagwise.media.labels.span import Notes, Span

NAMES = [r"\.birdnet\.results\.txt$", r"[._ -]labels?\.txt$", r"\.txt$"]
_SCORE = re.compile(r"(.*\S)\s+\(([01]?\.\d+|[01])\)")
_NUMBER = re.compile(r"-?\d+(\.\d*)?([eE][+-]?\d+)?")


def is_track(text: str) -> bool:
    """Whether the first line of a text is one of a label track."""
    tokens = text.lstrip("\n").split("\n", 1)[0].split("\t")
    return len(tokens) >= 2 and _NUMBER.fullmatch(tokens[0].strip()) is not None


def read_track(path: Path, text: str, root: Path | None = None) -> Notes:
    """What a label track says of the sound whose name it bears."""
    weak = ".birdnet.results" in path.name.lower()
    notes = Notes("BirdNET results for Audacity, as labels of whole files" if weak else "Audacity labels")
    file = beside(path, root, NAMES)
    notes.look(file)
    band: tuple[float | None, float | None]
    for line, row in enumerate(text.split("\n"), 1):
        if not row.strip():
            continue
        tokens = row.split("\t")
        if tokens[0] == "\\":
            band = _band(tokens, path, line)
            if notes.spans[-1].start is not None and not weak:
                last = notes.spans[-1]
                notes.spans[-1] = Span(
                    file,
                    last.label,
                    start=last.start,
                    end=last.end,
                    low=band[0],
                    high=band[1],
                    score=last.score,
                )
            continue
        if tokens[0].startswith("\\"):
            continue  # of a later version
        span = _span(tokens, file, path, line)
        if span is not None:
            notes.spans.append(_birdnet(span, tokens) if weak else span)
    return notes


def _span(tokens: list[str], file: str, path: Path, line: int) -> Span | None:
    start = number_in(tokens[0], "the start", path, line)
    if len(tokens) < 2:
        raise DataError("expected start, end and text with tabs between them", path=path, line=line)
    if _NUMBER.fullmatch(tokens[1].strip()) or len(tokens) > 2:
        end, text = number_in(tokens[1], "the end", path, line), tokens[2] if len(tokens) > 2 else ""
    else:
        end, text = start, tokens[1]  # the old form, a moment
    check_order(start, end, "a label", path, line)
    score, found = None, _SCORE.fullmatch(text.strip())
    if found:
        text, score = found[1], float(found[2])
    if not is_label(text):
        return None
    return Span(file, text.strip(), start=start, end=end, score=score)


def _birdnet(span: Span, tokens: list[str]) -> Span:
    """The common name, as in the other results of BirdNET."""
    name = re.split(r"_|, ", str(span.label), maxsplit=1)[-1]
    score = float(tokens[3]) if len(tokens) > 3 and _NUMBER.fullmatch(tokens[3].strip()) else None
    return Span(span.file, name, score=score)


def _band(tokens: list[str], path: Path, line: int) -> tuple[float | None, float | None]:
    if len(tokens) < 3:
        raise DataError("expected a backslash, a low and a high frequency", path=path, line=line)
    low, high = (number_in(token, "a frequency", path, line) for token in tokens[1:3])
    return (None if low < 0 else low), (None if high < 0 else high)


def track(spans: Sequence[Span], *, scores: bool = False, bands: bool = True) -> str:
    r"""The text of a label track.

    Examples
    --------
    >>> track([Span("a.wav", "wren", start=1, end=2.5, low=2000, high=8000, score=0.9)], scores=True)
    '1.000000\t2.500000\twren (0.90)\n\\\t2000.000000\t8000.000000\n'
    """
    lines = []
    for span in spans:
        text = one_line(span.label)
        if scores and span.score is not None:
            text += f" ({min(max(span.score, 0.0), 1.0):.2f})"
        lines.append(f"{span.start:.6f}\t{span.end:.6f}\t{text}\n")
        if bands and span.low is not None and span.high is not None:
            lines.append(f"\\\t{span.low:.6f}\t{span.high:.6f}\n")
    return "".join(lines)
