"""One function per verb of the command line; a program or the page calls the same functions.

They are imported when first used, so that a list of what there is needs none of the models.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_PLACES = {
    "annotate": "verbs",
    "check_target": "data",
    "compare": "comparing",
    "convert": "gathering",
    "demo": "comparing",
    "fit": "verbs",
    "gather": "gathering",
    "info": "describing",
    "list_all": "listing",
    "open_data": "data",
    "predict": "verbs",
    "score": "verbs",
    "train": "verbs",
}

if TYPE_CHECKING:
    from bagwise.actions.comparing import compare, demo
    from bagwise.actions.data import check_target, open_data
    from bagwise.actions.describing import info
    from bagwise.actions.gathering import convert, gather
    from bagwise.actions.listing import list_all
    from bagwise.actions.verbs import annotate, fit, predict, score, train

__all__ = [
    "annotate",
    "check_target",
    "compare",
    "convert",
    "demo",
    "fit",
    "gather",
    "info",
    "list_all",
    "open_data",
    "predict",
    "score",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'bagwise.actions' has no attribute {name!r}")
    return getattr(import_module(f"bagwise.actions.{_PLACES[name]}"), name)
