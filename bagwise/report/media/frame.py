"""What all drawings share: the figure, its title, the legend, and how a probability is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bagwise.media.labels import Found
from bagwise.utils.colours import distinct_colours

NO_ORIGINAL = "original not at hand: drawn from the places of its parts alone"
INK, FAINT, PAPER = "#24292f", "#6e7781", "white"
_NEAR = 0.1  # probability from which a label is worth a look


def new_figure(width: float, height: float) -> Any:
    """A figure that belongs to no window and no list."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=110, facecolor=PAPER)


def head(figure: Any, found: Found, note: str | None) -> None:
    """The name of the file, the labels of the whole, and, small, what is not as it should be."""
    width, height = figure.get_size_inches()
    figure.text(
        0.18 / width, 1 - 0.3 / height, shorten(found.file, int(width * 6)), size=11, weight="bold", color=INK
    )
    word = "found" if np.isfinite(found.values).any() or not len(found.values) else "labels"
    words = f"{word}: {', '.join(found.whole) or 'no label'}"
    figure.text(
        1 - 0.18 / width, 1 - 0.3 / height, shorten(words, int(width * 6)), size=9.5, color=INK, ha="right"
    )
    if note:
        figure.text(0.18 / width, 0.08 / height, note, size=7.5, color=FAINT, style="italic")


def shorten(text: str, room: int) -> str:
    """A text that fits, with an ellipsis where it was cut."""
    text = " ".join(text.split())
    return text if len(text) <= room else text[: max(room - 1, 1)] + "…"


def caption(label: str, value: float) -> str:
    """A label and its probability, if there is one.

    Examples
    --------
    >>> caption("wren", 0.912), caption("wren", float("nan"))
    ('wren .91', 'wren')
    """
    if not np.isfinite(value):
        return label
    return f"{label} 1.0" if value > 0.995 else f"{label} {value:.2f}".replace(" 0.", " .")


def rgb(colour: str) -> tuple[float, float, float]:
    """Shares of red, green and blue of a colour."""
    from matplotlib.colors import to_rgb

    return to_rgb(colour)


def colours_of(labels: np.ndarray, names: Sequence[str], more: Sequence[str] = ()) -> Mapping[str, str]:
    """A colour for every label that is drawn."""
    shown = [names[k] for k in sorted(set(labels[labels >= 0].tolist()))]
    return distinct_colours(names, [*shown, *more])


def most_seen(
    values: np.ndarray, labels: np.ndarray, whole: Sequence[str], names: Sequence[str], n: int
) -> list[int]:
    """The labels worth a map of their own: those of the file, then those that parts carry or come near to."""
    place = {name: k for k, name in enumerate(names)}
    first = [place[name] for name in whole if name in place]
    then = [int(k) for k in sorted(set(labels[labels >= 0].tolist()))]
    peak = np.nan_to_num(values, nan=0.0).max(axis=0) if len(values) else np.zeros(len(names))
    rest = [int(k) for k in np.argsort(-peak, kind="stable")]
    near = [k for k in rest if peak[k] >= _NEAR]
    return list(dict.fromkeys([*first, *then, *near]))[:n] or rest[:1]
