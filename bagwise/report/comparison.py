"""The plot of a comparison of models."""

from __future__ import annotations

from typing import Any

import numpy as np

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
    from matplotlib.figure import Figure

    shown = [model for model in result.ranking if np.isfinite(result.values(model)).all()]
    if figure is None:
        size = (7.0, 1.1 + 0.38 * len(shown))
        figure = Figure(figsize=size, dpi=150, layout="constrained", facecolor="white")
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
