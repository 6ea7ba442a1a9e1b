"""bagwise: learning from bags, whole objects that carry several labels while their parts carry none."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bagwise.bags import Bags, MultiViewBags
from bagwise.bags.dataset import Dataset
from bagwise.utils.version import __version__

# Imported when first used, so that `import bagwise` needs NumPy and scipy.sparse alone.
_LAZY = {
    "ShardedBags": "bagwise.shards",
    "all_estimators": "bagwise.registry",
    "checkpoint": "bagwise.compute.journal",
    "load": "bagwise.persistence",
    "load_dataset": "bagwise.datasets",
    "on_cluster": "bagwise.compute.dask",
    "read": "bagwise.io",
    "save": "bagwise.persistence",
    "write": "bagwise.io",
}
_MODULES = (
    "actions",
    "datasets",
    "errors",
    "inspection",
    "io",
    "look",
    "metrics",
    "model_selection",
    "models",
    "preprocessing",
    "report",
    "shards",
)

if TYPE_CHECKING:
    from bagwise.compute.dask import on_cluster
    from bagwise.compute.journal import checkpoint
    from bagwise.datasets import load_dataset
    from bagwise.io import read, write
    from bagwise.persistence import load, save
    from bagwise.registry import all_estimators
    from bagwise.shards import ShardedBags

__all__ = [
    "Bags",
    "Dataset",
    "MultiViewBags",
    "ShardedBags",
    "__version__",
    "all_estimators",
    "checkpoint",
    "load",
    "load_dataset",
    "on_cluster",
    "read",
    "save",
    "write",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return import_module(f"bagwise.{name}")
    raise AttributeError(f"module 'bagwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
