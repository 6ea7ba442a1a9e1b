"""Plots of results: critical differences of average ranks, and curves beside the published ones.

Every function draws on a `matplotlib.figure.Figure` and returns it; `svg` turns it into text.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from bagwise.errors import DataError
from papers.pages.cells import Curve, ResultFigure

INK, MUTED, _CONTROL, _OUTSIDE = "#24292f", "#8c959f", "#0969da", "#bc4c00"
# distinct for readers who do not see red and green apart (Okabe and Ito)
_CURVES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5d4a8a", "#000000")
_MARKERS = "osD^vPX*"
_LINE = 0.30  # inches between the names below the axis
_TICK = 0.24  # inches that the number of a rank takes
_LETTER, _WIDTH = 0.088, 7.2  # inches of a letter of a name, and of the whole plot if names are short


def critical_difference(ranks: Mapping[str, float], cd: float, control: str, title: str = "") -> Any:
    """Average ranks on an axis, with the reach within which a method does not differ from the control.

    The control is blue, the band of its critical difference to both sides is shaded; methods within it are
    grey with round marks, those outside are orange with square marks and a bold name.

    Parameters
    ----------
    ranks : mapping of str to float
        Average rank of each method; 1 is best and stands on the left.
    cd : float
        Critical difference of Bonferroni-Dunn.
    control : str
        The method with which the others are compared.
    title : str, optional
        Line above.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> figure = critical_difference({"A": 1.25, "B": 1.75, "C": 3.0}, 1.2, "A", "AUC")
    >>> [text.get_text() for text in figure.axes[0].texts if "." in text.get_text()]
    ['CD = 1.20', 'A  1.25', 'B  1.75', '3.00  C']
    """
    if control not in ranks:
        raise DataError(f"the control {control!r} has no rank; there are {', '.join(ranks)}")
    if len(ranks) < 2:
        raise DataError("a plot of critical differences needs at least two methods")
    order = sorted(ranks, key=lambda name: (ranks[name], name))
    k, middle = len(order), -(-len(order) // 2)
    depth = middle * _LINE
    names = _LETTER * max(map(len, order)) + 0.9  # inches for a name, its rank and its line, on both sides
    width = max(_WIDTH, 2 * names + 3.0, 0.1 * len(title) + 0.3)
    figure = new_figure((width, 1.25 + depth))
    axes = figure.add_axes((0, 0, 1, 1))
    low, high = 1.0, float(k)
    inch = (high - low) / (width - 2 * names)
    room = names * inch
    axes.set(xlim=(low - room, high + room), ylim=(-depth - 0.2, 1.05))
    axes.axis("off")
    if title:
        axes.text(
            0.012,
            0.9,
            title,
            transform=_mixed(axes),
            fontsize=10.5,
            fontweight="bold",
            color=INK,
            va="center",
        )

    start, end = max(low, ranks[control] - cd), min(high, ranks[control] + cd)
    axes.fill_between([start, end], -0.10, 0.10, color=_CONTROL, alpha=0.16, lw=0, zorder=1)
    _reach(axes, ranks[control], cd, low, high)
    axes.plot([low, high], [0, 0], color=INK, lw=1.2, zorder=2, solid_capstyle="butt")
    each = np.ceil(_TICK * inch)  # of many ranks some have a number
    for tick in np.arange(low, high + 0.5, 0.5 if k <= 10 else 1.0):
        whole = float(tick).is_integer()
        axes.plot([tick, tick], [0, 0.09 if whole else 0.05], color=INK, lw=1, zorder=2)
        if whole and (tick - low) % each == 0:
            axes.text(tick, 0.14, f"{tick:.0f}", ha="center", va="bottom", fontsize=8.5, color=INK)

    for i, name in enumerate(order):
        left = i < middle
        y = -(i + 1) * _LINE if left else -(k - i) * _LINE
        colour, marker, weight = _look(name, ranks, cd, control)
        edge = low - 0.25 * inch if left else high + 0.25 * inch
        axes.plot([ranks[name], ranks[name], edge], [0, y, y], color=colour, lw=1.1, zorder=3)
        front = 5 if name == control else 4  # a method of the same rank must not hide it
        axes.plot([ranks[name]], [0], marker, color=colour, ms=6, zorder=front, mec="white", mew=0.7)
        shown = f"{name}  {ranks[name]:.2f}" if left else f"{ranks[name]:.2f}  {name}"
        side = "right" if left else "left"
        place = edge - 0.06 * inch if left else edge + 0.06 * inch
        axes.text(place, y, shown, ha=side, va="center", fontsize=9, color=colour, fontweight=weight)
    return figure


def _mixed(axes: Any) -> Any:
    """Coordinates that run over the width of the figure sideways and over ranks' lines upwards."""
    from matplotlib.transforms import blended_transform_factory

    return blended_transform_factory(axes.transAxes, axes.transData)


def _reach(axes: Any, rank: float, cd: float, low: float, high: float) -> None:
    """The bar of one critical difference to each side of the control; an arrow where the axis ends first."""
    y = 0.52
    for sign in (-1, 1):
        wanted = rank + sign * cd
        tip = min(max(wanted, low), high)
        if abs(tip - rank) > 1e-12:
            style = "-|>" if tip != wanted else "|-|,widthA=0,widthB=0.25"
            look = {"arrowstyle": style, "color": _CONTROL, "lw": 1.6, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", (tip, y), (rank, y), arrowprops=look)
    axes.plot([rank, rank], [0.02, y], color=_CONTROL, lw=1.1, ls=":", zorder=1)
    axes.text(rank, y + 0.07, f"CD = {cd:.2f}", ha="center", va="bottom", fontsize=8.5, color=_CONTROL)


def _look(name: str, ranks: Mapping[str, float], cd: float, control: str) -> tuple[str, str, str]:
    if name == control:
        return _CONTROL, "o", "bold"
    outside = abs(ranks[name] - ranks[control]) >= cd - 1e-12
    return (_OUTSIDE, "s", "bold") if outside else ("#57606a", "o", "normal")


def curves(result: ResultFigure) -> Any:
    """Curves with bars of one standard deviation; published ones dashed, with hollow marks.

    A published curve has the colour of ours of the same name.

    Parameters
    ----------
    result : ResultFigure
        What to draw.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> ours, theirs = Curve("A", (1.0, 10.0), (0.5, 0.6), (0.1, 0.1)), Curve("A", (1.0, 10.0), (0.4, 0.6))
    >>> figure = curves(ResultFigure("p:fig1", "Title", "bags", "AUC", True, (ours,), (theirs,)))
    >>> figure.axes[0].get_xscale(), [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ('log', ['A', 'A (published)'])
    """
    figure = new_figure((6.4, 3.9), "constrained")
    axes = figure.add_subplot()
    names = list(dict.fromkeys(curve.name for curve in (*result.curves, *result.published)))
    for group, published in ((result.curves, False), (result.published, True)):
        for curve in group:
            _draw(axes, curve, names.index(curve.name), published)
    axes.set_xscale("log" if result.x_log else "linear")
    axes.set_yscale("log" if result.y_log else "linear")
    axes.set_xlabel(result.x_label, color=INK)
    axes.set_ylabel(result.y_label, color=INK)
    axes.set_title(result.title, fontsize=10.5, fontweight="bold", loc="left", color=INK, wrap=True)
    axes.grid(True, color="#d8dee4", lw=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if names:
        # Outside the axes, where it hides no curve.
        beside = len(result.curves) + len(result.published) > 6
        place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 3}
        if beside:
            place = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)}
        axes.legend(fontsize=8.5, frameon=False, handlelength=3, **place)
    else:
        axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", color=MUTED, fontsize=12)
    return figure


def _draw(axes: Any, curve: Curve, k: int, published: bool) -> None:
    std = np.array([np.nan if s is None else s for s in curve.std]) if curve.std else None
    axes.errorbar(
        curve.x,
        curve.mean,
        yerr=None if std is None or np.isnan(std).all() else np.nan_to_num(std),
        label=f"{curve.name} (published)" if published else curve.name,
        color=_CURVES[k % len(_CURVES)],
        marker=_MARKERS[k % len(_MARKERS)],
        ls="--" if published else "-",
        lw=1.3 if published else 1.8,
        ms=5,
        mfc="white" if published else None,
        capsize=2.5,
        elinewidth=1,
        alpha=0.85 if published else 1.0,
    )


def svg(figure: Any) -> str:
    """The figure as an SVG element: the same figure always gives the same text, with nothing linked to.

    Examples
    --------
    >>> text = svg(critical_difference({"A": 1.25, "B": 1.75}, 1.2, "A"))
    >>> text.startswith("<svg ") and text.rstrip().endswith("</svg>")
    True
    """
    import matplotlib

    # Names stay text: found by a search, read aloud, and a page with many plots stays small.
    settings: Any = {"svg.hashsalt": "bagwise", "svg.fonttype": "none"}
    buffer = io.StringIO()
    with matplotlib.rc_context(settings):
        # None takes each entry out, and the block that would cite outside addresses with them
        none = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=none)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def new_figure(size: tuple[float, float], layout: Any = None) -> Any:
    """An empty figure of a size in inches."""
    # Figure, not pyplot: no window, no list of open figures that grows
    from matplotlib.figure import Figure

    return Figure(figsize=size, dpi=150, layout=layout, facecolor="white")
