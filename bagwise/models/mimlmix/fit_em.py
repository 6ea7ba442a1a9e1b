"""Training of the label-instance part of MIMLmix: layout of the data, statistics of bags, the EM loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import digamma, gammaln

from bagwise.bags import Bags, MultiViewBags
from bagwise.base.blocks import Block, Blocks
from bagwise.compute.parts import map_reduce
from bagwise.models.mimlmix.fit_views import CountView, GaussianView, from_parts, sparse_parts
from bagwise.models.mimlmix.kernels import Bounds, Pairs, infer, phi

# Iterations after which view weights are estimated anew; no ascent step, so only twice.
WEIGHT_ROUNDS = (4, 7)
_SWEEPS = 30  # gamma starts cold in every pass


class Layout:
    """Views of the same bags, and their label sets over the model's components, in the arrays of the kernels.

    ``hypers`` hold the kind and the fixed settings of every view.
    """

    def __init__(self, views: Mapping[str, Bags], Y: np.ndarray, hypers: Mapping[str, dict]) -> None:
        n_bags = len(Y)
        bag_of, labels = np.nonzero(Y)
        self.labels = np.ascontiguousarray(labels)
        n_labels = np.bincount(bag_of, minlength=n_bags)
        self.label_start = starts(n_labels)
        sets = sparse.csr_array((np.ones(len(self.labels)), self.labels, self.label_start), shape=Y.shape)
        makers = {"counts": CountView, "gaussian": GaussianView}
        self.views: list[Any] = [
            makers[hypers[v]["kind"]](bags, sets, hypers[v]) for v, bags in views.items()
        ]
        sizes = np.sum([view.sizes for view in self.views], axis=0)
        self.inst_start, self.pair_start = starts(sizes), starts(sizes * n_labels)
        self.view_of = np.empty(self.inst_start[-1], dtype=np.int64)
        self.multiplicity = np.empty(self.inst_start[-1])
        lead = np.zeros(n_bags, dtype=np.int64)
        for v, view in enumerate(self.views):
            view.place(lead, self.inst_start, self.pair_start, n_labels)
            view.connect(self.label_start, self.labels)
            self.view_of[view.row_inst] = v
            self.multiplicity[view.row_inst] = view.multiplicity
            lead += view.sizes
        self.n_labels = n_labels
        self.bag_of = np.repeat(np.arange(n_bags), sizes)  # of every instance
        self.P = np.empty(self.pair_start[-1])
        self.shift = np.zeros(self.inst_start[-1])
        self.gamma: np.ndarray | None = None

    @property
    def n_bags(self) -> int:
        """Number of bags."""
        return len(self.label_start) - 1

    def uniform_statistics(self) -> list[dict[str, Any]]:
        """Statistics of phi = 1/L_n: where training begins; labels alone break the symmetry."""
        pairs = np.diff(self.pair_start)
        self.P[:] = np.repeat(1.0 / np.maximum(self.n_labels, 1), pairs)
        return [view.collect(self.P) for view in self.views]

    def cold_gamma(self, alpha: float, weights: np.ndarray) -> np.ndarray:
        """Each label's prior and an equal share of the bag's instances."""
        mass = np.bincount(self.bag_of, weights[self.view_of] * self.multiplicity, minlength=self.n_bags)
        return alpha + np.repeat(mass / np.maximum(self.n_labels, 1), self.n_labels)

    def statistics(self, weights: np.ndarray, alpha: float, max_inner: int, tol: float) -> Statistics:
        """One pass over all bags, from the gamma of the pass before; the first one begins cold."""
        if self.gamma is None:
            self.gamma = self.cold_gamma(alpha, weights)
        return collect_statistics(self, weights, alpha, self.gamma, max_inner, tol)

    def pairs(self, weights: np.ndarray) -> Pairs:
        """What the loops need to know, under some view weights."""
        of_instances = weights[self.view_of] * self.multiplicity
        return Pairs.of(self.label_start, self.inst_start, self.pair_start, of_instances)

    def per_bag(self, values: np.ndarray) -> np.ndarray:
        """Sums over the labels of every bag."""
        bags = np.repeat(np.arange(self.n_bags), self.n_labels)
        return np.bincount(bags, values, minlength=self.n_bags)


@dataclass
class Statistics:
    """What one pass over bags says about the model; additive over bags."""

    views: list[dict[str, Any]]
    bound: float
    slope: np.ndarray  # dL/dw_v
    instances: np.ndarray  # of every view


def collect_statistics(
    layout: Layout, weights: np.ndarray, alpha: float, gamma: np.ndarray, max_inner: int, tol: float
) -> Statistics:
    """E-step over all bags and the statistics of the M-step; ``gamma`` is updated in place.

    The one function behind batch training, `partial_fit` and training over partitions of the bags.
    """
    for view in layout.views:
        view.fill(layout.P, layout.shift)
    pairs = layout.pairs(weights)
    bounds = Bounds(int(max_inner), float(tol), True, False)
    psi = infer(pairs, layout.P, np.full(len(gamma), float(alpha)), gamma, bounds)
    log_p = phi(pairs, layout.P, psi) + layout.shift
    some = layout.n_labels > 0
    if not some.all():  # bags without labels have no part in the bound
        log_p = np.where(some[layout.bag_of], log_p, 0.0)
    # the form of the bound that needs one logarithm per instance
    total_g, total_a = layout.per_bag(gamma)[some], alpha * layout.n_labels[some]
    bound = (gammaln(gamma) - gammaln(alpha) - (gamma - alpha) * psi).sum() + pairs.weight @ log_p
    bound += (gammaln(total_a) - gammaln(total_g)).sum()
    psi_total = np.zeros(layout.n_bags)
    psi_total[some] = digamma(total_g)
    log_r = log_p - psi_total[layout.bag_of]
    n_views = len(layout.views)
    slope = np.bincount(layout.view_of, log_r * layout.multiplicity, minlength=n_views)
    instances = np.bincount(layout.view_of, layout.multiplicity, minlength=n_views)
    collected = [view.collect(layout.P) for view in layout.views]
    return Statistics(collected, float(bound), slope, instances)


def view_weights(
    slope: np.ndarray, instances: np.ndarray, tau: np.ndarray, informative: Any = True
) -> np.ndarray:
    """Weights of the views from eq. 11: w_v in proportion to log2(Delta_v - min Delta + 2) + tau_v.

    Views that say nothing get no weight.
    """
    informative = np.broadcast_to(informative, slope.shape)
    delta = slope / np.maximum(instances, 1.0)
    scaled = np.log2(np.maximum(delta - delta[informative].min(), 0.0) + 2.0) + tau
    return np.where(informative, scaled, 0.0) / scaled[informative].sum()


@dataclass
class Trained:
    """Result of `train`."""

    views: list[dict[str, Any]]
    weights: np.ndarray
    elbo: np.ndarray
    n_iter: int


def train(
    layout: Any,
    *,
    alpha: float,
    tau: np.ndarray | None,
    max_iter: int,
    tol: float,
    tied_start: int,
    max_inner: int,
    inner_tol: float = 1e-6,
) -> Trained:
    """Algorithm 2 with warm-started gamma: EM until the relative rise of the objective falls below ``tol``.

    ``layout`` is a `Layout`, or bags in parts that answer as one (`OverParts`). ``tau`` None keeps all view
    weights equal. The returned history covers the iterations under the final
    view weights, along which the objective cannot fall.
    """
    informative = np.array([view.hyper.get("informative", True) for view in layout.views])
    informative |= not informative.any()
    weights = informative / informative.sum()
    starting_tied = [v for v in layout.views if tied_start and v.hyper.get("covariance") == "full"]
    for view in starting_tied:
        view.tied = True
    for view, stats in zip(layout.views, layout.uniform_statistics()):
        view.update(stats)
    rounds = WEIGHT_ROUNDS if tau is not None and informative.sum() > 1 else ()
    final = max([tied_start if starting_tied else 0, *rounds])
    elbo: list[float] = []
    iteration = 0
    for iteration in range(1, max_iter + 1):
        found = layout.statistics(weights, alpha, max_inner, inner_tol)
        prior = sum(w * view.log_prior() for w, view in zip(weights, layout.views))
        elbo.append(found.bound + prior)
        rise = elbo[-1] - elbo[-2] if len(elbo) > 1 else np.inf
        if iteration > final + 1 and rise < tol * abs(elbo[-1]):
            break
        if iteration == tied_start:
            for view in starting_tied:
                view.tied = False
        for view, stats in zip(layout.views, found.views):
            view.update(stats)
        if iteration in rounds and iteration < max_iter:
            assert tau is not None  # without it there are no rounds
            weights = view_weights(found.slope, found.instances, tau, informative)
            elbo.clear()
    return Trained([view.export() for view in layout.views], weights, np.array(elbo), iteration)


def starts(sizes: np.ndarray) -> np.ndarray:
    """Offsets of consecutive runs of these sizes."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


# ---------------------------------------------------------------------- shards
# A pass gives every part the parameters of the views and adds up what its bags say. Gamma of a bag is not
# kept between passes: it starts cold and takes more sweeps, so that a pass depends on the parameters alone.


def as_views(bags: Any) -> dict[str, Bags]:
    """Views by name; a single one is called "instances"."""
    return dict(bags.views) if isinstance(bags, MultiViewBags) else {"instances": bags}


def view_parts(blocks: Blocks) -> dict[str, Any]:
    """The bags of every view, in parts."""
    if len(blocks) == 1:
        names = list(as_views(blocks.only().bags))
    else:
        names = list(blocks.shards.view_names) or ["instances"]  # type: ignore[attr-defined]
    return {name: blocks.map(partial(_view, name)) for name in names}


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
    """Bags in parts, as `train` asks for a `Layout`; ``n_features`` are those of every view."""

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
        return self._taken_up(map_reduce(_uniform, (self.components, self.hypers), self.parts, together))

    def statistics(self, weights: np.ndarray, alpha: float, max_inner: int, tol: float) -> Statistics:
        """One pass over all bags."""
        learned = [view.parameters() for view in self.views]
        how = (float(alpha), max(int(max_inner), _SWEEPS), float(tol))
        params = (self.components, self.hypers, learned, weights, how)
        found = map_reduce(_statistics, params, self.parts, together)
        return Statistics(**found | {"views": self._taken_up(found)})

    def _taken_up(self, found: dict[str, Any]) -> list[dict[str, Any]]:
        """Statistics of the views in the form that their M-step takes."""
        result = [
            {k: from_parts(v) if isinstance(v, dict) else v for k, v in s.items()} for s in found["views"]
        ]
        for view, stats in zip(self.views, result):
            view.cover(stats)
        return result


# ---------------------------------------------------------------------- one pass


def _uniform(params: Any, block: Block) -> dict[str, Any]:
    components, hypers = params
    layout = Layout(as_views(block.bags), components.sets(block.Y), hypers)
    return {"views": [_plain(stats) for stats in layout.uniform_statistics()]}


def _statistics(params: Any, block: Block) -> dict[str, Any]:
    components, hypers, learned, weights, (alpha, max_inner, tol) = params
    layout = Layout(as_views(block.bags), components.sets(block.Y), hypers)
    for view, parameters in zip(layout.views, learned):
        view.restore(parameters)
    gamma = layout.cold_gamma(alpha, weights)
    found = collect_statistics(layout, weights, alpha, gamma, max_inner, tol)
    return vars(found) | {"views": [_plain(stats) for stats in found.views]}


def _plain(stats: dict[str, Any]) -> dict[str, Any]:
    """Statistics as arrays alone, which travel and are kept in checkpoints."""
    return {k: sparse_parts(v) if hasattr(v, "indptr") else v for k, v in stats.items()}


def together(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Statistics of two parts added; sparse ones have the places of both."""
    views = [{k: _added(x[k], y[k]) for k in x} for x, y in zip(a["views"], b["views"])]
    return {"views": views} | {k: a[k] + b[k] for k in a if k != "views"}


def _added(x: Any, y: Any) -> Any:
    if not isinstance(x, dict):
        return x + y
    total = (from_parts(x) + from_parts(y)).tocsr()
    total.sort_indices()
    return sparse_parts(total)
