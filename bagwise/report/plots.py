"""Pictures of bags: what was found in each instance, instance scores, and matrices between labels.

Every function draws on a `matplotlib.figure.Figure` and returns it; ``figure.savefig("file.png")`` writes it
on machines without a screen, too. In a notebook the figure shows itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.dataset import UNKNOWN, Dataset
from bagwise.errors import DataError

# blue and vermilion of Okabe and Ito, which readers who do not see red and green apart tell from each other
_RIGHT, _WRONG, _NEUTRAL = "#0072b2", "#d55e00", "#24292f"
_FRAME, _NONE = "#d0d7de", "–"
_CELL, _GAP = 1.0, 0.14  # a picture is one unit wide; the space to the next
_HEAD, _FOOT, _SPACE = 0.42, 0.48, 0.22  # heights of the bag's title, of the label found, between bags


def plot_bags(
    dataset: Dataset,
    labels: np.ndarray,
    probabilities: np.ndarray | None = None,
    *,
    n_bags: int = 12,
    fact: str = "picture",
    columns: int = 2,
    title: str = "",
    figure: Any = None,
) -> Any:
    """Draw bags as rows of pictures with the label found below each.

    Where the true label is known, right ones are blue; wrong ones are orange, framed, and followed by the
    true label in brackets.

    Parameters
    ----------
    dataset : Dataset
        Bags whose instances carry pictures. Colours need known instance labels.
    labels : int array of shape (n_instances,)
        Label index found for every instance of the data set, -1 for none; see ``annotate``.
    probabilities : array of shape (n_instances, n_labels), optional
        Distribution over labels; that of the label found is written beside it.
    n_bags : int, default=12
        Number of bags to draw, from the first.
    fact : str, default="picture"
        Name of the pictures in ``bags.instance_info``: (n, height, width), or with three colours behind.
    columns : int, default=2
        Number of bags side by side.
    title : str, optional
        Line above.
    figure : matplotlib Figure, optional
        Where to draw; a new one by default.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from bagwise.datasets import make_digits
    >>> data = make_digits(n_bags=20)
    >>> plot_bags(data, data.instance_Y, n_bags=4).axes[0].get_title()
    ''
    """
    from matplotlib.patches import FancyBboxPatch, Rectangle

    bags = _one_view(dataset)
    if fact not in bags.instance_info:
        known = ", ".join(map(repr, bags.instance_info)) or "none"
        raise DataError(
            f"the instances carry no fact {fact!r} (there: {known}); plot_instance_scores needs no pictures"
        )
    labels = np.asarray(labels)
    if labels.shape != (bags.n_instances,):
        raise DataError(f"labels has shape {labels.shape}, expected ({bags.n_instances},)")
    pictures = bags.instance_info[fact]
    n_bags = min(n_bags, len(bags))
    lines = -(-n_bags // columns)
    widest = int(bags.sizes[:n_bags].max(initial=1))
    width = widest * (_CELL + _GAP) + _GAP + 0.3
    height = _HEAD + _CELL + _FOOT + _SPACE
    size = (0.52 * columns * width, 0.52 * (lines * height + (0.9 if title else 0.2)))
    figure = _new_figure(size) if figure is None else figure
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.3, columns * width), ylim=(lines * height + 0.05, -0.9 if title else -0.15))
    axes.set_aspect("equal")
    axes.axis("off")
    if title:
        axes.text(0, -0.6, title, fontsize=12, fontweight="bold", va="center", color=_NEUTRAL)
    shades: dict[str, Any] = {"cmap": "gray_r", "vmin": pictures.min(), "vmax": pictures.max()}
    for i in range(n_bags):
        # down the first column, then down the next: the order in which a list is read
        left, top = (i // lines) * width, (i % lines) * height
        box = (left, top), bags.sizes[i] * (_CELL + _GAP) + _GAP, height - _SPACE
        rounded = "round,pad=0,rounding_size=0.12"
        axes.add_patch(FancyBboxPatch(*box, boxstyle=rounded, fc="#f6f8fa", ec=_FRAME, lw=1, zorder=1))
        heading = f"{bags.bag_ids[i]}: {', '.join(dataset.label_sets[i]) or 'no label'}"
        room = max(4, int(box[1] * 6.5))
        heading = heading if len(heading) <= room else heading[: room - 1] + "…"
        axes.text(left + _GAP, top + 0.24, heading, fontsize=7.5, va="center", color="#57606a")
        for k, row in enumerate(range(bags.offsets[i], bags.offsets[i + 1])):
            x, y = left + _GAP + k * (_CELL + _GAP), top + _HEAD
            place = (x, x + _CELL, y + _CELL, y)
            axes.imshow(pictures[row], extent=place, interpolation="nearest", zorder=2, **shades)
            colour = _colour(dataset, row, labels[row])
            text = _NONE if labels[row] < 0 else dataset.label_names[labels[row]]
            if colour == _WRONG:
                text += f" ({dataset.label_names[dataset.instance_Y[row]]})"  # type: ignore
            if probabilities is not None and labels[row] >= 0:
                text += f"\n{probabilities[row, labels[row]]:.0%}"
            if colour == _WRONG:
                axes.add_patch(Rectangle((x, y), _CELL, _CELL, fc="none", ec=_WRONG, lw=1.8, zorder=3))
            axes.text(
                x + _CELL / 2,
                y + _CELL + _FOOT / 2,
                text,
                ha="center",
                va="center",
                fontsize=(12 if len(text) < 4 else 9) if probabilities is None else 7.5,
                fontweight="bold",
                linespacing=0.95,
                color=colour,
            )
    axes.set(xlim=(-0.3, columns * width), ylim=(lines * height + 0.05, -0.9 if title else -0.15))
    return figure


def plot_instance_scores(
    dataset: Dataset, scores: np.ndarray, *, n_bags: int = 12, title: str = "", figure: Any = None
) -> Any:
    """Draw the scores of instances as a heat map: a column per instance, bags parted by white lines.

    A circle marks the true label of an instance where it is known.

    Parameters
    ----------
    dataset : Dataset
        The bags.
    scores : array of shape (n_instances, n_labels)
        Scores or probabilities; see ``instance_scores``.
    n_bags : int, default=12
        Number of bags to draw, from the first.
    title : str, optional
        Line above.
    figure : matplotlib Figure, optional
        Where to draw; a new one by default.

    Returns
    -------
    matplotlib.figure.Figure
    """
    bags = _one_view(dataset)
    scores = np.asarray(scores)
    if scores.shape != (bags.n_instances, len(dataset.label_names)):
        expected = (bags.n_instances, len(dataset.label_names))
        raise DataError(f"scores has shape {scores.shape}, expected {expected}")
    n_bags = min(n_bags, len(bags))
    ends = bags.offsets[: n_bags + 1]
    if figure is None:
        figure = _new_figure((max(4.5, 0.2 * ends[-1] + 2.5), 0.28 * scores.shape[1] + 1.5), "constrained")
    figure = heat_map(scores[: ends[-1]].T, dataset.label_names, (), title=title, figure=figure)
    axes = figure.axes[0]
    for end in ends[1:-1]:
        axes.axvline(end - 0.5, color="white", lw=2)
    middles = [(a + b - 1) / 2 for a, b in zip(ends[:-1], ends[1:])]
    axes.set_xticks(middles, [str(name) for name in bags.bag_ids[:n_bags]], rotation=90, fontsize=8)
    axes.set_xlabel("instances of each bag")
    if dataset.instance_Y is not None:
        truth = dataset.instance_Y[: ends[-1]]
        known = np.flatnonzero(truth != UNKNOWN)
        axes.scatter(known, truth[known], s=22, facecolors="none", edgecolors="black", linewidths=1)
    return figure


def heat_map(
    matrix: np.ndarray,
    row_names: Sequence[str] = (),
    column_names: Sequence[str] | None = None,
    *,
    title: str = "",
    figure: Any = None,
) -> Any:
    """Draw a matrix in colours, such as the covariance of labels; zero is white when signs differ.

    Parameters
    ----------
    matrix : array of shape (n_rows, n_columns)
        What to draw.
    row_names, column_names : sequences of str
        Names along the sides. Columns take the names of the rows when left out.
    title : str, optional
        Line above.
    figure : matplotlib Figure, optional
        Where to draw; a new one by default.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> figure = heat_map(np.array([[1.0, -0.5], [-0.5, 1.0]]), ["robin", "wren"])
    >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
    ['robin', 'wren']
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2:
        raise DataError(f"a heat map needs a matrix, got {matrix.ndim} dimension(s)")
    column_names = row_names if column_names is None else column_names
    for names, count, side in ((row_names, len(matrix), "row"), (column_names, matrix.shape[1], "column")):
        if len(names) not in (0, count):
            raise DataError(f"{len(names)} {side} names for {count} {side}s")
    if figure is None:
        size = (min(0.35 * matrix.shape[1], 14) + 2.5, min(0.35 * len(matrix), 14) + 1.5)
        figure = _new_figure(size, "constrained")
    axes = figure.add_subplot()
    finite = matrix[np.isfinite(matrix)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    shades: dict[str, Any] = {"cmap": "viridis", "vmin": low, "vmax": high}
    if low < 0 < high:
        reach = max(-low, high)
        shades = {"cmap": "RdBu_r", "vmin": -reach, "vmax": reach}
    image = axes.imshow(matrix, aspect="auto", interpolation="nearest", **shades)
    axes.set_xticks(range(len(column_names)), column_names, rotation=90, fontsize=8)
    axes.set_yticks(range(len(row_names)), row_names, fontsize=8)
    axes.set_title(title, fontsize=11, loc="left")
    figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02)
    return figure


def _new_figure(size: tuple[float, float], layout: Any = None) -> Any:
    # Figure, not pyplot: no window, no list of open figures that grows
    from matplotlib.figure import Figure

    return Figure(figsize=size, dpi=150, layout=layout, facecolor="white")


def _one_view(dataset: Dataset) -> Bags:
    if not isinstance(dataset.bags, Bags):
        raise DataError(f"drawing takes one view; pick one of {', '.join(dataset.bags.view_names)}")
    return dataset.bags


def _colour(dataset: Dataset, row: int, label: int) -> str:
    if dataset.instance_Y is None or dataset.instance_Y[row] == UNKNOWN:
        return _NEUTRAL
    return _RIGHT if dataset.instance_Y[row] == label else _WRONG


# ----------------------------------------------------------------------
# The plot of a comparison of models


_LEADER, _SIMPLE, _OTHER = "#0072b2", "#999999", "#56b4e9"  # told apart by the colour-blind


def plot_comparison(result: Any, figure: Any = None) -> Any:
    """Draw the deciding measure: a point per fold, the mean as a line, best model on top.

    Parameters
    ----------
    result : Comparison
        What `bagwise.model_selection.compare` returned.
    figure : matplotlib Figure, optional
        Where to draw; a new one by default.

    Returns
    -------
    matplotlib.figure.Figure
    """
    shown = [model for model in result.ranking if np.isfinite(result.values(model)).all()]
    if figure is None:
        figure = _new_figure((7.0, 1.1 + 0.38 * len(shown)), "constrained")
    axes = figure.add_subplot()
    for place, model in enumerate(shown):
        values = result.values(model)
        colour = _LEADER if place == 0 else _SIMPLE if model in result.simple else _OTHER
        jitter = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(1)
        axes.scatter(values, place + jitter, s=14, color=colour, alpha=0.6, linewidths=0)
        axes.vlines(values.mean(), place - 0.32, place + 0.32, color=colour, lw=2.2)
        axes.annotate(
            f"{values.mean():.3f}",
            (1.01, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=8,
            color="#24292f",
        )
    axes.set_yticks(range(len(shown)), shown, fontsize=9)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xlabel(f"{result.measure.replace('_', ' ')} of held-out bags, a point per fold", fontsize=9)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color="#d0d7de", lw=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure
