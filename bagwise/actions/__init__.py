"""One function per verb of the command line; a program or a web page calls the same functions.

They are imported when first used, so that a list of what there is needs none of the models.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_PLACES = {
    "annotate": "verbs",
    "compare": "comparing",
    "convert": "describing",
    "demo": "demonstration",
    "explain": "looking",
    "fit": "verbs",
    "gather": "gathering",
    "info": "describing",
    "list_all": "listing",
    "open_data": "matching",
    "open_session": "looking",
    "predict": "verbs",
    "score": "verbs",
    "train": "learning",
}

if TYPE_CHECKING:
    from bagwise.actions.comparing import compare
    from bagwise.actions.demonstration import demo
    from bagwise.actions.describing import convert, info
    from bagwise.actions.gathering import gather
    from bagwise.actions.learning import train
    from bagwise.actions.listing import list_all
    from bagwise.actions.looking import explain, open_session
    from bagwise.actions.matching import open_data
    from bagwise.actions.verbs import annotate, fit, predict, score

__all__ = [
    "annotate",
    "compare",
    "convert",
    "demo",
    "explain",
    "fit",
    "gather",
    "info",
    "list_all",
    "open_data",
    "open_session",
    "predict",
    "score",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'bagwise.actions' has no attribute {name!r}")
    return getattr(import_module(f"bagwise.actions.{_PLACES[name]}"), name)
