"""MIGraph: a support vector machine on a kernel between the graphs of bags, their nodes and their edges."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import pdist, squareform

from bagwise.bags import Bags
from bagwise.base import Traits
from bagwise.base.parameters import JOBS, Choice, Device, Number, Whole
from bagwise.compute.threads import small_products
from bagwise.errors import DataError
from bagwise.models.svm.base import SCALING, ScaledClassifier, machines_on, resolve_gamma
from bagwise.models.svm.kernels import own_kernels, set_kernel
from bagwise.utils.arrays import check_memory

_GAMMA = (Choice("scale"), Number(above=0))
MOST_EDGE_PAIRS = 4e10  # pairs of directed edges: some ten minutes of two cores
_BOTH_WAYS = np.sqrt(0.5)  # each edge is listed twice; an edge is compared with another in both directions


class MIGraph(ScaledClassifier):
    r"""Compare bags by all pairs of their instances and by all pairs of edges of their graphs.

    In the graph of a bag instances that are near each other are joined. Not to be mistaken for miGraph, a
    later and much cheaper method, which is ``SetKernelSVM("graph")``.

    Parameters
    ----------
    gamma : float or "scale", default="scale"
        Of the kernel between instances, ``exp(-gamma |x - x'|^2)``; "scale" is one over the number of
        features and the variance of their scaled values. What matters most; try it times 1/4 to 16.
    C : float, default=10.0
        Penalty of errors; try 1 to 1000.
    edge_gamma : float or "scale", default="scale"
        Of the kernel between edges, which have four features; "scale" as for instances.
    edge_threshold : float, optional
        Instances nearer than this are joined; by default the mean distance of the bag's pairs. 0 joins none
        and leaves MI-Kernel, ``SetKernelSVM()``.
    max_edges : int, optional
        Most edges of a bag, the shortest ones (and those as short); by default all. For large bags, whose
        edges grow with the square of their size.
    scaling : {"standard", "minmax", "l2", "none"}, default="standard"
        What is done to instances first: features with mean 0 and variance 1 over the training instances
        (sparse ones are divided by one spread, not moved), features divided by their range, instances
        divided by their length, or nothing.
    device : {"auto", "cpu", "cuda", "cuda:0", ...}, default="auto"
        Where kernels are computed; "auto" takes a GPU if there is one and pairs are many.
    n_jobs : int, optional
        Labels learned at a time.

    Attributes
    ----------
    bags_ : Bags
        Training bags that support some label, scaled.
    edges_ : Bags
        Their edges, one bag of edges for each.
    support_ : ndarray of shape (n_support,)
        Their numbers among the training bags.
    norms_ : ndarray of shape (n_support,)
        What their kernels are divided by: the root of the kernel of a bag with itself.
    dual_coef_ : ndarray of shape (n_support, n_labels)
        Their weights in the machines.
    intercept_ : ndarray of shape (n_labels,)
        Constants of the machines.
    gamma_, edge_gamma_ : float
        What was used.
    constant_scores_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. It is the
        score of such a label everywhere.

    Notes
    -----
    With instances a, c and edges e, f of bags A and C,

    .. math:: K(A, C) = \sum_{ij} k(a_i, c_j) + \sum_{ef} k'(e, f), \qquad
        \hat K(A, C) = K(A, C) / \sqrt{K(A, A) K(C, C)}

    with Gaussian kernels k and k'. An edge between instances u and v is described by
    :math:`(d_u, p_u, d_v, p_v)`: :math:`d_u` is the number of edges at u over the sum of these numbers,
    :math:`p_u = w_{uv} / \sum_t w_{ut}` with weights :math:`w_{uv}`, one over the distance of u and v. Since
    an edge has no direction, :math:`k'(e, f)` is the sum of two Gaussians, for f and for f turned round.

    Kernels of all pairs of M edges take :math:`O(M^2)` steps besides the :math:`O(N^2 d)` of N instances, and
    M may be as large as the sum of the squares of the bags' sizes. Where pairs of edges are more than
    ``4e10``, the fit is refused; ``max_edges`` bounds them.

    Scores of instances are those of bags of one instance, which have no edges.

    *Differences from* [1]_. (1) The paper leaves open what limit joins instances and how weights are
    normalised; the mean distance, and p as above, where a factor common to all weights cancels. (2) Equal
    instances are at a distance of a millionth of the bag's mean, since one over 0 is no weight. (3)
    ``edge_gamma`` and ``max_edges``.

    References
    ----------
    .. [1] Z.-H. Zhou, Y.-Y. Sun, Y.-F. Li: Multi-instance learning by treating instances as non-i.i.d.
       samples. ICML 2009.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=120, random_state=0)
    >>> model = MIGraph().fit(data.bags, data.Y)
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.9)
    True
    """

    traits = Traits(instances="singleton", device=("cpu", "cuda"))

    _parameters = {
        "gamma": _GAMMA,
        "C": Number(above=0),
        "edge_gamma": _GAMMA,
        "edge_threshold": (Choice(None), Number(0)),
        "max_edges": (Choice(None), Whole(1)),
        "scaling": SCALING,
        "device": Device(),
        "n_jobs": JOBS,
    }

    def __init__(
        self,
        gamma="scale",
        C=10.0,
        *,
        edge_gamma="scale",
        edge_threshold=None,
        max_edges=None,
        scaling="standard",
        device="auto",
        n_jobs=None,
    ):
        self.gamma = gamma
        self.C = C
        self.edge_gamma = edge_gamma
        self.edge_threshold = edge_threshold
        self.max_edges = max_edges
        self.scaling = scaling
        self.device = device
        self.n_jobs = n_jobs

    def _learn(self, X, offsets, Y):
        self._refuse_too_many(offsets)
        self.gamma_ = resolve_gamma(self.gamma, X)
        E, starts = bag_edges(X, offsets, self.edge_threshold, self.max_edges)
        self.edge_gamma_ = resolve_gamma(self.edge_gamma, E) if len(E) else 1.0
        bags, edges = Bags(X, offsets), Bags(E, starts)
        K = self._kernel(bags, edges)
        norms = np.sqrt(np.diagonal(K))
        K = K / np.outer(norms, norms)  # kernels may be shared with other settings: never in place
        self.support_, self.dual_coef_, self.intercept_ = machines_on(K, Y, self.C, self.n_jobs)
        self.norms_ = norms[self.support_]
        kept, joined = bags[self.support_], edges[self.support_]
        self.bags_, self.edges_ = Bags(kept.X, kept.offsets), Bags(joined.X, joined.offsets)

    def _refuse_too_many(self, offsets):
        """Before the work begins: about half of all pairs are nearer than the mean."""
        sizes = np.diff(offsets)
        pairs = sizes * (sizes - 1.0) / 2.0
        if self.edge_threshold is None:
            pairs /= 2.0
        if self.max_edges is not None:
            pairs = np.minimum(pairs, self.max_edges)
        n_edges = 2.0 * pairs.sum()
        if self.edge_threshold != 0 and n_edges**2 > MOST_EDGE_PAIRS:
            largest = int(sizes.max())
            raise DataError(
                f"MIGraph compares all pairs of edges: these {len(sizes)} bags (the largest of {largest} "
                f"instances) have about {n_edges / 2.0:,.0f} edges, and {MOST_EDGE_PAIRS**0.5 / 2:,.0f} are "
                "the most; set max_edges to keep the shortest of each bag, or take miGraph, "
                'SetKernelSVM("graph")'
            )

    def _kernel(self, bags, edges, other=None, other_edges=None):
        """Sums of kernels over pairs of instances and of edges."""
        K = _sums(bags, other, self.gamma_, 1.0, self.device)
        if edges.n_instances and (other_edges is None or other_edges.n_instances):
            K = K + _sums(edges, other_edges, self.edge_gamma_, _BOTH_WAYS, self.device)
        return K

    _width = 1  # `set_kernel` goes block by block on its own

    def _score(self, X, offsets):
        if len(self.support_) == 0:  # every label is constant
            return np.zeros((len(offsets) - 1, len(self.intercept_)))
        E, starts = bag_edges(X, offsets, self.edge_threshold, self.max_edges)
        most, size = int(np.diff(starts).max(initial=0)), int(np.diff(offsets).max(initial=0))
        if float(most) ** 2 > MOST_EDGE_PAIRS:
            raise DataError(
                f"MIGraph compares all pairs of edges of a bag: one of {size} instances has {most / 2:,.0f} "
                f"edges, and {MOST_EDGE_PAIRS**0.5 / 2:,.0f} are the most; cut it, or fit with max_edges"
            )
        own = own_kernels(X, offsets, np.ones(X.shape[0]), gamma=self.gamma_)
        own = own + own_kernels(E, starts, np.full(len(E), _BOTH_WAYS), gamma=self.edge_gamma_)
        K = self._kernel(Bags(X, offsets), Bags(E, starts), self.bags_, self.edges_)
        return K / np.outer(np.sqrt(own), self.norms_) @ self.dual_coef_ + self.intercept_


def _sums(A, C, gamma, weight, device):
    """Set kernel with one weight for all, of the bags A with themselves or with the bags C."""
    size = A.n_instances * (A if C is None else C).n_instances * A.n_features
    with small_products(size):
        if C is None:
            return set_kernel(A.X, A.offsets, np.full(A.n_instances, weight), gamma=gamma, device=device)
        weights = np.full(A.n_instances, weight), np.full(C.n_instances, weight)
        return set_kernel(A.X, A.offsets, weights[0], C.X, C.offsets, weights[1], gamma=gamma, device=device)


# ----------------------------------------------------------------------
# Graphs of bags: which instances are joined, and what describes each edge
#
# Instances nearer than a limit, by default the mean distance of the bag's pairs, are joined. An edge (u,
# v) is described by four numbers, ``[degree of u, share of the edge in u, degree of v, share in v]``:
# degrees divided by the sum of all degrees of the bag, shares being the edge's weight (one over its
# length) over the weights of all edges of the node. Every edge is listed in both directions.


_SLACK = 1e-9  # relative; a distance this close to the limit counts as equal to it
_SHORTEST = 1e-6  # least length of an edge, as a share of the mean distance: equal instances lie at 0


def edge_features(X: np.ndarray, threshold: float | None = None, most: int | None = None) -> np.ndarray:
    """Features (2 n_edges, 4) of the edges of one bag, each edge in both directions.

    Instances nearer than ``threshold`` are joined, by default the mean distance of the bag's pairs; with
    ``most``, only so many edges, the shortest ones.
    """
    if len(X) < 2:
        return np.empty((0, 4))
    what = f"the distances of all pairs in a bag of {len(X):,} instances"
    check_memory(16.0 * len(X) ** 2, what, 'cut the bag, or take SetKernelSVM("graph")')
    lengths = pdist(X)
    mean = lengths.mean()
    limit = mean if threshold is None else threshold
    joined = lengths < limit * (1.0 - _SLACK)
    if most is not None and np.count_nonzero(joined) > most:
        longest = np.partition(lengths[joined], most - 1)[most - 1]
        joined &= lengths <= longest * (1.0 + _SLACK)  # equal ones stay together, whatever their order
    if not joined.any():
        return np.empty((0, 4))
    strength = squareform(np.where(joined, 1.0 / np.maximum(lengths, max(_SHORTEST * mean, 1e-300)), 0.0))
    edges = strength > 0
    degree = edges.sum(axis=1) / edges.sum()
    share = strength / np.where(edges.any(axis=1), strength.sum(axis=1), 1.0)[:, None]
    u, v = np.nonzero(edges)
    return np.column_stack([degree[u], share[u, v], degree[v], share[v, u]])


def bag_edges(
    X: Any, offsets: np.ndarray, threshold: float | None, most: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Edges of all bags, bag after bag, and where those of each bag begin."""
    found = []
    for a, b in zip(offsets[:-1], offsets[1:]):
        part = X[a:b].toarray() if sparse.issparse(X) else X[a:b]
        found.append(edge_features(part, threshold, most))
    starts = np.concatenate([[0], np.cumsum([len(edges) for edges in found])])
    return np.concatenate([np.empty((0, 4)), *found]), starts.astype(np.int64)
