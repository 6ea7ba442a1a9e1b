"""The page in the browser: look at bags through the eyes of a model, correct, learn again.

`open_session` is the way in for programs: a `Session` answers with plain data what the page asks. ``serve``
runs the page until Ctrl-C, ``write_page`` makes one file of it that needs no server. The page itself lies in
``static/``: plain modules, one per kind of view. Everything is imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bagwise.errors import OptionalDependencyError

_PLACES = {
    "Corrections": "corrections",
    "RelearningProcess": "relearning_process",
    "Session": "session",
    "explain": "session",
    "export": "exporting",
    "make_app": "server",
    "open_session": "session",
    "relearn": "relearning",
    "serve": "server",
    "write_page": "page",
}

if TYPE_CHECKING:
    from bagwise.look.corrections import Corrections
    from bagwise.look.exporting import export
    from bagwise.look.page import write_page
    from bagwise.look.relearning import relearn
    from bagwise.look.relearning_process import RelearningProcess
    from bagwise.look.server import make_app, serve
    from bagwise.look.session import Session, explain, open_session

__all__ = [
    "Corrections",
    "RelearningProcess",
    "Session",
    "explain",
    "export",
    "make_app",
    "open_session",
    "relearn",
    "serve",
    "write_page",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'bagwise.look' has no attribute {name!r}")
    try:
        return getattr(import_module(f"bagwise.look.{_PLACES[name]}"), name)
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing not in ("starlette", "uvicorn"):
            raise
        raise OptionalDependencyError(f"the page needs {missing}: pip install 'bagwise[web]'") from None
