"""Ridge regression on a kernel between bags, whose answers to left-out bags cost nothing extra.

The kernel of two bags is the sum of ``exp(-gamma |x - x'|^2)`` over pairs of their instances, divided by the
roots of their kernels with themselves. A bag of one instance is a row: the same code serves tables.

Up to `EXACT_BAGS` bags the regression has one coefficient per training bag. Beyond, it has one per landmark,
a sample of training instances (Nystroem): the kernel is then that of the bags' projections on the landmarks.
Either way the score of a bag is ``sum_i k(x_i, D) @ C`` over its instances, divided by its root, plus a bias.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg
from sklearn.metrics.pairwise import euclidean_distances

from bagwise.bags import instance_rows, runs
from bagwise.compute.segment import segment_sum
from bagwise.models.svm.kernels import own_kernels

BIAS = 10.0  # added to every kernel: a constant that is hardly penalised
PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
EXACT_BAGS, EXACT_INSTANCES = 3000, 40_000  # beyond either, landmarks
CHOICE_BAGS = 700  # width and penalty are chosen on so many bags
LANDMARKS = 1000
_CELLS = 1 << 18  # pairs of instances at a time: they stay in the cache


@dataclass(frozen=True)
class SetRidge:
    """A fitted regression: dictionary of instances, a coefficient of each for each label, bias, width."""

    dictionary: np.ndarray
    coef: np.ndarray
    bias: np.ndarray
    gamma: float

    def predict(self, X: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Scores (n_bags, n_labels), about -1 for absent and 1 for present."""
        F = np.empty((len(X), self.coef.shape[1]))
        step = max(_CELLS // max(len(self.dictionary), 1), 1)
        for a in range(0, len(X), step):
            F[a : a + step] = pair_kernel(X[a : a + step], self.dictionary, self.gamma) @ self.coef
        return segment_sum(F / _roots(X, offsets, self.gamma)[:, None], offsets) + self.bias


def pair_kernel(X: np.ndarray, Z: np.ndarray, gamma: float) -> np.ndarray:
    """Kernel of all pairs of rows; distances in double, the exponential in single precision, for speed."""
    D = euclidean_distances(X, Z, squared=True)
    D *= -gamma
    E = D.astype(np.float32)
    return np.exp(E, out=E).astype(np.float64)


def _roots(X: np.ndarray, offsets: np.ndarray, gamma: float) -> np.ndarray:
    """For every instance the root of the kernel of its bag with itself."""
    if len(offsets) == len(X) + 1:
        return np.ones(len(X))
    own = np.sqrt(own_kernels(X, offsets, np.ones(len(X)), gamma=gamma))
    return np.repeat(own, np.diff(offsets))


def bag_kernels(X: np.ndarray, offsets: np.ndarray, gammas: Sequence[float]) -> list[np.ndarray]:
    """Kernels between all bags for widths each four times the one before, from one exponential.

    ``exp(-4 t)`` is ``exp(-t)`` squared twice. Bags are divided by their roots; an empty bag has zeros.

    Examples
    --------
    >>> X, offsets = np.array([[0.0], [1.0], [0.0]]), np.array([0, 2, 3])
    >>> bag_kernels(X, offsets, [0.25, 1.0])[1].round(3)
    array([[1.   , 0.827],
           [0.827, 1.   ]])
    """
    n = len(offsets) - 1
    out = [np.zeros((n, n)) for _ in gammas]
    a = 0
    while a < n:
        columns = slice(int(offsets[a]), None)  # bags before this one are mirrored
        limit = offsets[a] + _CELLS // max(len(X) - int(offsets[a]), 1)
        b = max(int(np.searchsorted(offsets, limit, side="right")) - 1, a + 1)
        rows = slice(int(offsets[a]), int(offsets[b]))
        D = euclidean_distances(X[rows], X[columns], squared=True)
        E = (-gammas[0] * D).astype(np.float32)
        np.exp(E, out=E)
        for g, K in enumerate(out):
            if g:
                np.square(E, out=E)
                np.square(E, out=E)
            # as doubles: the loop of sums is compiled for one type only, and a block is soon copied
            sums = segment_sum(E.astype(np.float64), offsets[a : b + 1] - offsets[a]).T
            K[a:b, a:] = segment_sum(sums, offsets[a:] - offsets[a]).T
            K[b:, a:b] = K[a:b, b:].T
        a = b
    for K in out:
        roots = np.sqrt(np.maximum(K.diagonal(), 0.0))
        scale = np.divide(1.0, roots, out=np.zeros(n), where=roots > 0)
        K *= scale[:, None] * scale
    return out


def leave_one_out(
    K: np.ndarray, T: np.ndarray, penalties: Sequence[float]
) -> Iterator[tuple[float, np.ndarray, np.ndarray]]:
    r"""Coefficients and exact leave-one-out answers for several penalties, from one eigendecomposition.

    With :math:`G = (K + \lambda I)^{-1}` the coefficients are :math:`\alpha = G T` and the answer to bag b
    without it in training is :math:`T_b - \alpha_b / G_{bb}`.

    Yields
    ------
    penalty, coefficients, answers

    Examples
    --------
    >>> K, T = np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([[1.0], [-1.0]])
    >>> [(penalty, answers)] = [(p, a) for p, _, a in leave_one_out(K, T, [1.0])]
    >>> answers.ravel()  # learned from the other bag alone: 0.5 / 2 of its target
    array([-0.25,  0.25])
    """
    if len(penalties) == 1:  # an inverse is cheaper than eigenvectors
        regular = K + penalties[0] * np.eye(len(K))
        factor = linalg.cho_factor(regular, overwrite_a=True, check_finite=False)
        G = linalg.cho_solve(factor, np.eye(len(regular)), overwrite_b=True, check_finite=False)
        alpha = G @ T
        yield penalties[0], alpha, T - alpha / G.diagonal()[:, None]
        return
    values, V = linalg.eigh(K, check_finite=False, driver="evd")
    projected, squares = V.T @ T, np.square(V)
    for penalty in penalties:
        inverse = 1.0 / (np.maximum(values, 0.0) + penalty)
        alpha = V @ (inverse[:, None] * projected)
        yield penalty, alpha, T - alpha / (squares @ inverse)[:, None]


def primal_leave_one_out(
    Phi: np.ndarray, T: np.ndarray, penalties: Sequence[float]
) -> Iterator[tuple[float, np.ndarray, np.ndarray]]:
    """The same for features: weights of the columns, and answers to rows left out by their leverage.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Phi, T = rng.normal(size=(30, 4)), rng.normal(size=(30, 2))
    >>> [(_, _, first)] = leave_one_out(Phi @ Phi.T, T, [0.5])
    >>> [(_, _, second)] = primal_leave_one_out(Phi, T, [0.5])
    >>> np.allclose(first, second)
    True
    """
    values, V = linalg.eigh(Phi.T @ Phi, check_finite=False, driver="evd")
    rotated = Phi @ V
    projected, squares = rotated.T @ T, np.square(rotated)
    for penalty in penalties:
        inverse = 1.0 / (np.maximum(values, 0.0) + penalty)
        weights = inverse[:, None] * projected
        leverage = np.minimum(squares @ inverse, 1.0 - 1e-9)
        fitted = rotated @ weights
        yield penalty, V @ weights, T - (T - fitted) / (1.0 - leverage)[:, None]


def best_of(candidates: Iterator[tuple[float, np.ndarray, np.ndarray]], T: np.ndarray) -> tuple[Any, ...]:
    """The candidate with the least squared leave-one-out error: error, penalty, coefficients, answers."""
    return min(((float(np.square(T - c[2]).sum()), *c) for c in candidates), key=lambda c: c[0])


def fit_ridge(
    X: np.ndarray, offsets: np.ndarray, Y: np.ndarray, multiples: Sequence[float], rng: Any
) -> tuple[SetRidge, np.ndarray, dict[str, Any]]:
    """Choose width and penalty by leave-one-out errors, and fit.

    Parameters
    ----------
    X : ndarray of shape (n_instances, n_features)
        Scaled instances.
    offsets : ndarray of shape (n_bags + 1,)
        Where bags begin.
    Y : ndarray of shape (n_bags, n_labels)
        Labels, 0 or 1; the regression is on -1 and 1.
    multiples : sequence of float
        Widths to try, in units of one over features times variance; each four times the one before.
    rng : RandomState
        Draws the bags for the choice, and landmarks.

    Returns
    -------
    model, answers to left-out bags, facts for `members_`
    """
    T = 2.0 * Y - 1.0
    spread = X.shape[1] * float(X.var())
    base = 1.0 / spread if spread > 0 else 1.0
    gammas = [base * m for m in multiples]
    n = len(offsets) - 1
    few = np.arange(n) if n <= CHOICE_BAGS else np.sort(rng.choice(n, CHOICE_BAGS, replace=False))
    rows, part_offsets = (slice(None), offsets) if len(few) == n else instance_rows(offsets, few)
    kernels = bag_kernels(X[rows], part_offsets, gammas)
    found = [best_of(leave_one_out(K + BIAS, T[few], PENALTIES), T[few]) for K in kernels]
    g = int(np.argmin([f[0] for f in found]))
    penalty, alpha, answers = found[g][1:]
    facts = {"gamma": gammas[g], "gamma_multiple": float(multiples[g]), "penalty": penalty}
    exact = n <= EXACT_BAGS and len(X) <= EXACT_INSTANCES
    if exact and len(few) < n:
        [K] = bag_kernels(X, offsets, gammas[g : g + 1])
        [(_, alpha, answers)] = leave_one_out(K + BIAS, T, [penalty])
    if not exact:
        return *_nystroem(X, offsets, T, gammas[g], rng), {**facts, "landmarks": min(LANDMARKS, len(X))}
    roots = _roots(X, offsets, gammas[g])
    coef = np.repeat(alpha, np.diff(offsets), axis=0) / roots[:, None]
    return SetRidge(X, coef, BIAS * alpha.sum(axis=0), gammas[g]), answers, facts


def _nystroem(X, offsets, T, gamma, rng):
    """Ridge on projections of bags on landmarks; penalties are tried again, on all bags."""
    marks = X[np.sort(rng.choice(len(X), min(LANDMARKS, len(X)), replace=False))]
    values, V = linalg.eigh(pair_kernel(marks, marks, gamma), check_finite=False)
    kept = values > 1e-6 * values[-1]
    projection = V[:, kept] / np.sqrt(values[kept])
    roots = _roots(X, offsets, gamma)
    n = len(offsets) - 1
    Psi = np.zeros((n, len(marks)))
    for a, b in runs(offsets, _CELLS * 8 // len(marks)):
        rows = slice(int(offsets[a]), int(offsets[b]))
        part = pair_kernel(X[rows], marks, gamma) / roots[rows, None]
        Psi[a:b] = segment_sum(part, offsets[a : b + 1] - offsets[a])
    Phi = np.column_stack([Psi @ projection, np.full(n, np.sqrt(BIAS))])
    _, _, weights, answers = best_of(primal_leave_one_out(Phi, T, PENALTIES), T)
    return SetRidge(marks, projection @ weights[:-1], np.sqrt(BIAS) * weights[-1], gamma), answers
