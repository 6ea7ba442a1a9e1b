"""MIMLmix on shards: statistics of bags in parts, for the EM loop that bags in memory have.

A pass gives every part the parameters of the views and adds up what its bags say. Gamma of a bag is not kept
between passes: it starts cold and takes more sweeps, so that a pass depends on the parameters alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bagwise.bags import Bags, MultiViewBags
from bagwise.base.blocks import Block, Blocks
from bagwise.compute.parts import map_reduce
from bagwise.models.mimlmix.em import Layout, Statistics, collect_statistics
from bagwise.models.mimlmix.views import from_parts, sparse_parts

__all__ = ["OverParts", "as_views", "view_names", "view_parts"]

_SWEEPS = 30  # gamma starts cold in every pass


def as_views(bags: Any) -> dict[str, Bags]:
    """Views by name; a single one is called "instances"."""
    return dict(bags.views) if isinstance(bags, MultiViewBags) else {"instances": bags}


def view_names(blocks: Blocks) -> list[str]:
    """Names of the views of all blocks."""
    if len(blocks) == 1:
        return list(as_views(blocks.only().bags))
    return list(blocks.shards.view_names) or ["instances"]  # type: ignore[attr-defined]


def view_parts(blocks: Blocks) -> dict[str, Any]:
    """The bags of every view, in parts."""
    return {name: blocks.map(partial(_view, name)) for name in view_names(blocks)}


def _view(name: str, block: Block) -> Bags:
    return as_views(block.bags)[name]


class Components(NamedTuple):
    """Labels that the model knows, and whether the background is one more component."""

    labels: np.ndarray
    background: bool

    def sets(self, Y: np.ndarray) -> np.ndarray:
        """Label sets over the components."""
        sets = np.ascontiguousarray(Y[:, self.labels])
        return np.column_stack([sets, ~Y.any(axis=1)]).astype(np.int8) if self.background else sets


class OverParts:
    """Bags in parts, as `train` asks for a `Layout`.

    Parameters
    ----------
    blocks : Blocks
        The bags.
    components : Components
        What the model's components are.
    hypers : mapping of str to dict
        Kind and fixed settings of every view.
    n_features : mapping of str to int
        Features of every view.
    """

    def __init__(
        self,
        blocks: Blocks,
        components: Components,
        hypers: Mapping[str, dict[str, Any]],
        n_features: Mapping[str, int],
    ) -> None:
        self.parts, self.components, self.hypers = blocks, components, dict(hypers)
        nobody = {v: Bags(np.empty((0, n_features[v])), [0]) for v in hypers}
        none = np.zeros((0, len(components.labels) + components.background), dtype=np.int8)
        self.views = Layout(nobody, none, hypers).views  # of no bag: they hold the parameters

    def uniform_statistics(self) -> list[dict[str, Any]]:
        """Statistics of phi = 1/L_n, where training begins."""
        return self._taken_up(map_reduce(_uniform, (self.components, self.hypers), self.parts, _together))

    def start(self, alpha: float, weights: np.ndarray) -> None:
        """Nothing is kept between passes."""

    def statistics(self, weights: np.ndarray, alpha: float, max_inner: int, tol: float) -> Statistics:
        """One pass over all bags."""
        learned = [view.parameters() for view in self.views]
        how = (float(alpha), max(int(max_inner), _SWEEPS), float(tol))
        told = (self.components, self.hypers, learned, weights, how)
        found = map_reduce(_statistics, told, self.parts, _together)
        return Statistics(**{**found, "views": self._taken_up(found)})

    def _taken_up(self, found: dict[str, Any]) -> list[dict[str, Any]]:
        """Statistics of the views in the form that their M-step takes."""
        result = [
            {k: from_parts(v) if isinstance(v, dict) else v for k, v in s.items()} for s in found["views"]
        ]
        for view, stats in zip(self.views, result):
            view.cover(stats)
        return result


# ---------------------------------------------------------------------- one pass


def _uniform(told: Any, block: Block) -> dict[str, Any]:
    components, hypers = told
    layout = Layout(as_views(block.bags), components.sets(block.Y), hypers)
    return {"views": [_plain(stats) for stats in layout.uniform_statistics()]}


def _statistics(told: Any, block: Block) -> dict[str, Any]:
    components, hypers, learned, weights, (alpha, max_inner, tol) = told
    layout = Layout(as_views(block.bags), components.sets(block.Y), hypers)
    for view, parameters in zip(layout.views, learned):
        view.restore(parameters)
    gamma = layout.cold_gamma(alpha, weights)
    found = collect_statistics(layout, weights, alpha, gamma, max_inner, tol)
    sums = {name: getattr(found, name) for name in ("bound", "slope", "instances", "n_bags")}
    return {"views": [_plain(stats) for stats in found.views], **sums}


def _plain(stats: dict[str, Any]) -> dict[str, Any]:
    """Statistics as arrays alone, which travel and are kept in checkpoints."""
    return {k: sparse_parts(v) if hasattr(v, "indptr") else v for k, v in stats.items()}


def _together(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Statistics of two parts added; sparse ones have the places of both."""
    views = [{k: _added(x[k], y[k]) for k in x} for x, y in zip(a["views"], b["views"])]
    return {"views": views} | {k: a[k] + b[k] for k in a if k != "views"}


def _added(x: Any, y: Any) -> Any:
    if not isinstance(x, dict):
        return x + y
    total = (from_parts(x) + from_parts(y)).tocsr()
    total.sort_indices()
    return sparse_parts(total)
