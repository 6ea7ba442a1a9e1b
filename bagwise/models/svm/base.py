"""What multi-instance baselines share: scaled instances, blocks of bags, labels one after the other."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from sklearn.metrics.pairwise import euclidean_distances, linear_kernel
from sklearn.svm import SVC
from sklearn.utils import check_random_state

from bagwise.bags import Bags, runs
from bagwise.base import MIMLClassifier
from bagwise.base.parameters import JOBS, Choice, Number, Rules
from bagwise.compute.memo import remembered
from bagwise.compute.scaling import SCALINGS, apply_scaling, learn_scaling
from bagwise.compute.segment import segment_max
from bagwise.compute.threads import openmp_threads, small_products
from bagwise.models._shared.scores import constant_scores, each_label, put_constants

SCALING = Choice(*SCALINGS)  # what the parameter may be
CELLS = 1 << 21  # numbers of a block of a kernel matrix, or of dense instances, held at a time


class ScaledClassifier(MIMLClassifier):
    """Learns from scaled instances; labels that never change in training get a constant score.

    A subclass writes ``_learn(X, offsets, Y)`` on scaled instances in double precision, which also sets
    ``_width``, the numbers that scoring holds per instance, and ``_score(X, offsets)``.
    """

    scaling: str
    constant_scores_: np.ndarray
    _learn: Callable[..., None]
    _score: Callable[..., np.ndarray]
    _width: int

    def _fit(self, bags: Bags, Y: np.ndarray) -> None:
        self._scaling = learn_scaling(bags.X, self.scaling)
        self.constant_scores_ = constant_scores(Y)
        self._learn(self._scaled(bags.X), bags.offsets, Y)

    def _scaled(self, X: Any) -> Any:
        return short_indices(apply_scaling(X, self._scaling))

    def _scores(self, bags: Bags) -> np.ndarray:
        return put_constants(np.concatenate(self._in_blocks(self._score, bags)), self.constant_scores_)

    def _in_blocks(self, answer: Callable[..., Any], bags: Bags) -> list[Any]:
        """What ``answer(X, offsets)`` says of some bags at a time, their instances scaled."""
        parts = blocks(bags, CELLS // max(self._width, bags.n_features))
        return [answer(self._scaled(part.X), part.offsets) for part in parts]


class InstanceClassifier(ScaledClassifier):
    """Scores instances by ``_instance_score(X, offsets)`` of a subclass, and a bag by its best instance."""

    _instance_score: Callable[..., np.ndarray]

    def _score(self, X: Any, offsets: np.ndarray) -> np.ndarray:
        return segment_max(self._instance_score(X, offsets), offsets)

    def _instance_scores(self, bags: Bags) -> np.ndarray:
        scores = np.concatenate(self._in_blocks(self._instance_score, bags))
        return put_constants(scores, self.constant_scores_)


def blocks(bags: Bags, n_rows: int) -> Iterator[Bags]:
    """Runs of bags with at most some instances together; a larger bag is a run by itself."""
    for a, b in runs(bags.offsets, n_rows):
        yield bags[a:b]


def row_blocks(offsets: np.ndarray, n_rows: int) -> Iterator[tuple[int, int, slice]]:
    """Bags and rows of blocks with at most some rows: whole bags, or a part of a larger one.

    Examples
    --------
    >>> list(row_blocks(np.array([0, 1, 2, 5]), 2))
    [(0, 2, slice(0, 2, None)), (2, 3, slice(2, 4, None)), (2, 3, slice(4, 5, None))]
    """
    for a, b in runs(offsets, n_rows):
        lo, hi = int(offsets[a]), int(offsets[b])
        for start in range(lo, hi, n_rows):
            yield a, b, slice(start, min(start + n_rows, hi))


def short_indices(X: Any) -> Any:
    """CSR with 32-bit indices where they suffice: libsvm and k-means take no others."""
    if sparse.issparse(X) and X.indices.dtype != np.int32 and X.nnz < 2**31:
        parts = X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)
        return sparse.csr_array(parts, shape=X.shape)
    return X


def row_squares(X: Any) -> np.ndarray:
    """Squared length of every row."""
    if sparse.issparse(X):
        return np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel()
    return np.einsum("ij,ij->i", X, X)


def bag_matrix(offsets: np.ndarray, weights: np.ndarray) -> sparse.csr_array:
    """Matrix (n_bags, n_instances) whose product with instances is their weighted sum in each bag.

    Examples
    --------
    >>> bag_matrix(np.array([0, 2, 3]), np.array([1.0, 2.0, 3.0])).toarray()
    array([[1., 2., 0.],
           [0., 0., 3.]])
    """
    n = int(offsets[-1])
    kind = np.int32 if n < 2**31 else np.int64
    parts = weights, np.arange(n, dtype=kind), offsets.astype(kind)
    return sparse.csr_array(parts, shape=(len(offsets) - 1, n))


# ----------------------------------------------------------------------
# Support vector machines on a kernel matrix that all labels share, and labels that never change


# what the parameters of a machine, and of a method with one per label, may be, for tables of estimators
MACHINE: Rules = {
    "kernel": Choice("rbf", "linear"),
    "gamma": (Choice("scale"), Number(above=0)),
    "C": Number(above=0),
}
MACHINES: Rules = {**MACHINE, "scaling": SCALING, "n_jobs": JOBS}
THRESHOLD_RULE = Choice("t-criterion", "zero")
# libsvm's own 1e-3 lets the last bits of a kernel matrix move scores by as much. It keeps kernels in single
# precision, so that with large ones it may never arrive at less; then ten times as much is enough.
_TOL, _TOL_LARGEST = 1e-6, 1e-3
_STEPS_PER_ROW = 1000  # after which it is known not to arrive


def resolve_gamma(gamma: float | str, X: Any, *, whole: bool = False) -> float:
    """One over the sum of the features' variances for "scale", else what was given.

    A number that is added to a feature changes no distance, so it must not change this. ``whole`` takes the
    variance of all values of all features instead, as scikit-learn's machines do.
    """
    if gamma != "scale":
        return float(gamma)
    axis = None if whole else 0
    if sparse.issparse(X):
        variance = X.multiply(X).mean(axis=axis) - np.square(X.mean(axis=axis))
    else:
        variance = X.var(axis=axis)
    mean = float(np.mean(variance))
    return 1.0 / (X.shape[1] * mean) if mean > 0 else 1.0


def gram(kernel: str, gamma: float, A: Any, B: Any) -> np.ndarray:
    """Kernel of every pair of rows."""
    if B.shape[0] == 0:  # nothing supports a machine whose labels are all constant
        return np.zeros((A.shape[0], 0))
    if kernel == "linear":
        return linear_kernel(A, B, dense_output=True)
    K = euclidean_distances(A, B, squared=True)
    K *= -gamma
    return np.exp(K, out=K)


def kernel_products(kernel: str, gamma: float, A: Any, B: Any, weights: np.ndarray) -> np.ndarray:
    """Kernel of all rows of A and of B, times weights (n_b,) or (n_b, k) of the latter, block by block."""
    step = max(1, CELLS // max(B.shape[0], 1))
    with small_products(float(min(step, A.shape[0])) * B.shape[0] * A.shape[1]):
        parts = [gram(kernel, gamma, A[a : a + step], B) @ weights for a in range(0, A.shape[0], step)]
    return np.concatenate(parts)


def precomputed_machine(
    y: np.ndarray, K: np.ndarray, C: float, tol: float = _TOL, weights: dict[int, float] | None = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """Support vectors, their weights and the intercept of one label; ``weights`` are factors on C."""
    while True:
        last = tol >= _TOL_LARGEST
        limit = -1 if last else _STEPS_PER_ROW * max(len(K), 100)
        svm = SVC(kernel="precomputed", C=C, tol=tol, class_weight=weights, max_iter=limit)
        with warnings.catch_warnings():
            if not last:
                warnings.simplefilter("ignore", ConvergenceWarning)
            svm.fit(K, y)
        if last or svm.fit_status_ == 0:
            break
        tol *= 10.0
    return svm.support_, svm.dual_coef_[0], float(svm.intercept_[0])


def spread_out(K: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Kernel with the mean moved to the origin and a mean squared distance of 1 between two rows.

    Also the means (n,) of the rows of the kernel given, and the mean squared distance of two of them, 1 where
    all are alike. A machine with a constant is the same at any origin. Its weights sum to 0, so that with
    weights a of the new kernel ``sum_j a_j (k(x, x_j) - means_j) / unit`` is its value at any x, before the
    constant.

    Examples
    --------
    >>> K, means, unit = spread_out(np.array([[1.0, 0.5], [0.5, 1.0]]) + 100.0)
    >>> K.round(3).tolist(), means.tolist(), unit
    ([[0.5, -0.5], [-0.5, 0.5]], [100.75, 100.75], 0.5)
    """
    means = K.mean(axis=1)
    centred = K - means[:, None] - means + means.mean()
    # over all pairs, a row with itself among them
    unit = 2.0 * float(np.trace(centred)) / len(K)
    if unit <= 1e-12 * max(float(np.abs(K).max()), 1e-300):
        unit = 1.0
    centred /= unit
    return centred, means, unit


def machines_on(
    K: np.ndarray, Y: np.ndarray, C: float, n_jobs: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What `weights_of` gives of a machine per label on one kernel matrix."""
    return weights_of(each_label(precomputed_machine, Y, n_jobs, K, C), len(K))


def weights_of(machines: list[Any], n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows that support some label, their weights (n_support, n_labels), and intercepts.

    Examples
    --------
    >>> rows, weights, intercept = weights_of([(np.array([2]), np.array([0.5]), 1.0), None], 4)
    >>> rows.tolist(), weights.tolist(), intercept.tolist()
    ([2], [[0.5, 0.0]], [1.0, 0.0])
    """
    weights, intercept = np.zeros((n, len(machines))), np.zeros(len(machines))
    for label, machine in enumerate(machines):
        if machine is not None:
            support, dual, intercept[label] = machine
            weights[support, label] = dual
    rows = np.flatnonzero(weights.any(axis=1))
    return rows, weights[rows], intercept


def t_criterion(scores: np.ndarray, constants: np.ndarray) -> np.ndarray:
    """Labels with a score above 0 and, in bags that have none, the best one; a single label stands alone.

    Among the best are no labels that no training bag carries (-1 in ``constants``): their score is no margin.

    Examples
    --------
    >>> scores = np.array([[0.5, 0.1, -1.0], [-2.0, -1.5, -1.0]])
    >>> t_criterion(scores, np.array([np.nan, np.nan, -1.0])).tolist()
    [[True, True, False], [False, True, False]]
    >>> t_criterion(np.array([[-1.0]]), np.array([np.nan])).tolist()
    [[False]]
    """
    chosen = scores > 0
    known = np.flatnonzero(~(constants < 0))
    if scores.shape[1] > 1 and known.size:
        none = np.flatnonzero(~chosen.any(axis=1))
        chosen[none, known[scores[np.ix_(none, known)].argmax(axis=1)]] = True
    return chosen


def labels_by_rule(rule: str, scores: np.ndarray, constants: np.ndarray) -> np.ndarray:
    """Label sets by a ``threshold_rule``: "t-criterion" or "zero"."""
    return t_criterion(scores, constants) if rule == "t-criterion" else scores > 0


# ----------------------------------------------------------------------
# Words for instances: centres of k-means, and the nearest one of each instance


def learn_codebook(
    X: Any,
    n_words: int,
    random_state: Any,
    *,
    n_init: int = 1,
    max_iter: int = 300,
    n_jobs: int | None = None,
) -> tuple[np.ndarray, int]:
    """Centres of k-means that are the nearest of some instance, and the iterations it took.

    Examples
    --------
    >>> X = np.array([[0.0], [0.2], [5.0], [5.2]])
    >>> words, _ = learn_codebook(X, 2, 0)
    >>> sorted(words.ravel().round(1).tolist())
    [0.1, 5.1]
    """
    seed = random_state
    if not isinstance(seed, int):
        seed = int(check_random_state(seed).randint(2**31 - 1))
    words, _, n_iter = _remembered_k_means(X, n_words, seed, n_init, max_iter, n_jobs)
    return words[np.unique(nearest_word(X, words, n_jobs))], n_iter


def k_means(
    X: Any, k: int, seed: Any, n_init: int = 1, max_iter: int = 300, n_jobs: int | None = None
) -> tuple[np.ndarray, np.ndarray, int]:
    """Centres of k-means, the one of each row, and its iterations; some centres may be nobody's."""
    found = KMeans(min(k, X.shape[0]), n_init=n_init, max_iter=max_iter, random_state=seed)
    with warnings.catch_warnings(), openmp_threads(n_jobs):
        # fewer distinct rows than centres: callers drop or replace those that nobody needs
        warnings.filterwarnings("ignore", "Number of distinct clusters", ConvergenceWarning)
        found.fit(X)
    return found.cluster_centers_, found.labels_, found.n_iter_


_remembered_k_means = remembered(k_means)


def nearest_word(X: Any, words: np.ndarray, n_jobs: int | None = None) -> np.ndarray:
    """Number of the nearest centre of every instance."""
    with openmp_threads(n_jobs):
        return pairwise_distances_argmin(X, words)
