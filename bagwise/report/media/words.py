"""A text with its sentences marked: a coloured ground behind the words, label and probability after them.

Long texts are cut to the paragraphs with marks; what is left out shows as an ellipsis.
"""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple

import numpy as np

from bagwise.media.labels import Found
from bagwise.media.labels.answers import full_text, spans_of
from bagwise.media.labels.span import Span
from bagwise.report.media.frame import FAINT, INK, caption, colours_of, head, new_figure, shorten

_COLUMNS, _MOST_LINES = 96, 58
_LETTER, _LINE = 0.602 * 10 / 72, 0.2  # inches; a letter of the font below is .602 of its size wide
_LEFT, _TAGS = 0.3, 2.4
_FONT = "DejaVu Sans Mono"


class Line(NamedTuple):
    """One line as it is drawn: its words, and where they begin in the text; -1 for an ellipsis."""

    text: str
    start: int


def draw(found: Found, names: list[str]) -> tuple[Any, str | None]:
    """Draw one text."""
    text, original = full_text(found.path, found.places)
    spans = spans_of(found, names, "text", merge=True)
    lines = _cut(_lines(text), spans)
    figure = new_figure(_LEFT + _COLUMNS * _LETTER + _TAGS, 0.7 + _LINE * max(len(lines), 1) + 0.3)
    colours = colours_of(found.labels, names)
    tall = figure.get_size_inches()[1]
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, figure.get_size_inches()[0])
    axes.set_ylim(tall, 0)
    axes.axis("off")
    tagged: set[int] = set()
    for k, line in enumerate(lines):
        y = 0.72 + k * _LINE
        _line(axes, line, y, spans, colours)
        _tags(axes, line, y, spans, colours, tagged)
    note = None
    if not original and found.path is not None:
        note = "the original does not fit the places: drawn from the parts alone"
    elif len(lines) >= _MOST_LINES:
        note = "only lines near marks are shown"
    head(figure, found, note)
    return figure, note


def _lines(text: str) -> list[Line]:
    """The text in lines of a fixed number of letters, broken between words."""
    lines, start = [], 0
    for paragraph in text.split("\n"):
        place = 0
        for piece in textwrap.wrap(paragraph, _COLUMNS, drop_whitespace=False, replace_whitespace=False) or [
            ""
        ]:
            lines.append(Line(piece.replace("\t", " "), start + place))
            place += len(piece)
        start += len(paragraph) + 1
    while lines and not lines[-1].text.strip():
        lines.pop()
    return lines


def _cut(lines: list[Line], spans: list[Span]) -> list[Line]:
    """At most so many lines: those with marks and their neighbours, ellipses between them."""
    if len(lines) <= _MOST_LINES:
        return lines
    starts = np.array([line.start for line in lines])
    marked = np.zeros(len(lines), dtype=bool)
    for span in spans:
        first = int(np.searchsorted(starts, span.characters[0], side="right")) - 1
        last = int(np.searchsorted(starts, span.characters[1], side="left"))
        marked[max(first - 1, 0) : last + 1] = True
    if not marked.any():
        marked[:_MOST_LINES] = True
    kept: list[Line] = []
    for k in np.flatnonzero(marked):
        if len(kept) >= _MOST_LINES - 1:
            break
        if k and not marked[k - 1]:
            kept.append(Line("…", -1))
        kept.append(lines[k])
    return [*kept, Line("…", -1)]


def _line(axes: Any, line: Line, y: float, spans: list[Span], colours: Any) -> None:
    from matplotlib.patches import Rectangle

    end = line.start + len(line.text.rstrip())
    for span in spans:
        first, last = span.characters
        a, b = max(first, line.start), min(last, end)
        if line.start < 0 or a >= b:
            continue
        x, width = _LEFT + (a - line.start) * _LETTER, (b - a) * _LETTER
        ground = Rectangle((x, y - 0.15), width, 0.18, color=colours[span.label], alpha=0.26, linewidth=0)
        axes.add_patch(ground)
    for k, letter_run in _words(line.text):
        axes.text(
            _LEFT + k * _LETTER,
            y,
            letter_run,
            size=10,
            family=_FONT,
            color=INK,
            va="baseline",
            parse_math=False,
        )


def _words(text: str) -> list[tuple[int, str]]:
    """Words with the columns in which they begin, so that every letter stands in its own column."""
    found, k = [], 0
    for word in text.split(" "):
        if word:
            found.append((k, word))
        k += len(word) + 1
    return found


def _tags(axes: Any, line: Line, y: float, spans: list[Span], colours: Any, tagged: set[int]) -> None:
    """Names of the spans that begin in this line, in the margin, each in its colour."""
    x = _LEFT + _COLUMNS * _LETTER + 0.15
    words = []
    for k, span in enumerate(spans):
        if k in tagged or line.start < 0:
            continue
        first, last = span.characters
        if first < line.start + len(line.text) and last > line.start:
            tagged.add(k)
            words.append((caption(str(span.label), np.nan if span.score is None else span.score), span.label))
    room = 30
    for text, label in words:
        if room < 6:
            axes.text(x, y, "…", size=8, color=FAINT)
            break
        axes.text(x, y, "■", size=9, color=colours[label], family=_FONT)
        shown = shorten(text, room)
        axes.text(x + 0.13, y, shown, size=8, color=INK)
        x += 0.13 + 0.068 * (len(shown) + 2)
        room -= len(shown) + 3
