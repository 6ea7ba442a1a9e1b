"""Results for people: tables of measures, pictures of bags, files of predictions and annotations.

Everything is imported when first used: who writes a table needs nothing that draws.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_PLACES = {
    "as_json": "results",
    "comparison_table": "tables",
    "draw_bag": "media",
    "draw_found": "media",
    "heat_map": "plots",
    "measure_title": "tables",
    "plot_bags": "plots",
    "plot_instance_scores": "plots",
}

if TYPE_CHECKING:
    from bagwise.report.media import draw_bag, draw_found
    from bagwise.report.plots import heat_map, plot_bags, plot_instance_scores
    from bagwise.report.results import as_json
    from bagwise.report.tables import comparison_table, measure_title

__all__ = [
    "as_json",
    "comparison_table",
    "draw_bag",
    "draw_found",
    "heat_map",
    "measure_title",
    "plot_bags",
    "plot_instance_scores",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'bagwise.report' has no attribute {name!r}")
    return getattr(import_module(f"bagwise.report.{_PLACES[name]}"), name)
