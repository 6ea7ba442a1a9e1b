"""Which classes a model file may bring to life, and under which name it speaks of them.

A file names a class of bagwise by its public place, such as ``bagwise.models.MIMLGP``, and not by the file
that happens to hold its code, so that moving code never breaks a model file. Files of before that rule name
the place of their day; their class is found by its own name, which no two classes of the catalogue share.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from bagwise import bags, base, metrics, model_selection, models, preprocessing
from bagwise.compute.scaling import Scaling
from bagwise.media.recipe import transformers
from bagwise.metrics.table import _Scorer
from bagwise.models.auto.estimator import PARTS
from bagwise.utils.sklearn_compat import trusted_names

__all__ = ["skops"]


# Parts of fitted models that have no public place; this package keeps them under these names.
STATE = {"Scaling": Scaling, "Scorer": _Scorer, **{part.__name__: part for part in PARTS}}


@cache
def catalogue() -> dict[str, type]:
    """Classes by the name that files use."""
    found = {}
    for module in (models, preprocessing, model_selection):
        for name in module.__all__:
            if isinstance(getattr(module, name), type):
                found[f"{module.__name__}.{name}"] = getattr(module, name)
    found |= {"bagwise.Bags": bags.Bags, "bagwise.MultiViewBags": bags.MultiViewBags}
    found |= {"bagwise.base.Traits": base.Traits}
    found |= {f"bagwise.media.{cls.__name__}": cls for cls in transformers()}
    return found | {f"bagwise.persistence.{name}": cls for name, cls in STATE.items()}


def trusted() -> set[str]:
    """Names of everything that may come to life, beside what skops trusts by itself."""
    measures = (getattr(metrics, name) for name in metrics.__all__)
    functions = {f"{f.__module__}.{f.__name__}" for f in measures if hasattr(f, "__name__")}
    return {*catalogue(), *trusted_names(), *functions}


def renamed(schema: Any) -> bool:
    """Give every class of bagwise in a description its public name, in place; say whether any had another."""
    known = catalogue()
    place = {cls.__name__: name.rpartition(".") for name, cls in known.items()}
    changed, todo = False, [schema]
    while todo:
        node = todo.pop()
        if isinstance(node, list):
            todo += node
        elif isinstance(node, dict):
            todo += node.values()
            module, name = node.get("__module__"), node.get("__class__")
            ours = isinstance(module, str) and isinstance(name, str) and module.partition(".")[0] == "bagwise"
            if ours and f"{module}.{name}" not in known and name in place:
                node["__module__"], _, node["__class__"] = place[name]
                changed = True
    return changed


# ----------------------------------------------------------------------
# skops, imported without torch and Dask
#
# To learn which classes it may trust, skops imports every module of scikit-learn, among them its adapters
# to torch and Dask: where these are installed, loading any model would take seconds and hundreds of
# megabytes more. While skops is imported for the first time they count as not installed, which that
# search allows for.


@contextmanager
def not_installed(*names: str) -> Iterator[None]:
    """Let imports of packages that nobody imported yet fail for a while.

    Examples
    --------
    >>> with not_installed("turtle"):
    ...     try:
    ...         import turtle
    ...     except ImportError:
    ...         print("as if it were not there")
    as if it were not there
    """
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
            if sys.modules.get(name, 0) is None:
                del sys.modules[name]


with not_installed("torch", "dask", "cupy", "jax"):
    import skops
    import skops.io
