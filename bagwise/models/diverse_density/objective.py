"""What concepts cost: the objectives of diverse density and of its EM, for many concepts at once.

A concept is a point h and a scale per feature s, one row ``[h, s]`` of ``theta``. An instance x belongs to it
with probability ``p = exp(-q)``, ``q = sum_k s_k^2 (x_k - h_k)^2``. Distances of all instances to all
concepts are two matrix products, and so is the gradient, which is what makes many starts cheap. Everything
else is written in q and never in p, since in many dimensions p is often too small to be a number.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bagwise.bags import runs
from bagwise.kernels.segment import segment_logsumexp, segment_sum

FLOOR = 1e-10  # of q: an instance at the very point of a concept is a positive one almost surely
_TINY = 1e-200  # sums of probabilities below which their logarithms are summed instead
_SMALL = 1e-4  # p below which the series of -log(1 - p) is exact and its logarithm is not
_CELLS = 1 << 16  # instances times concepts at a time: what stays in the cache
_CHOSEN = 1 << 18  # numbers of chosen instances at a time, likewise


def distances(X: np.ndarray, points: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Squared scaled distance q of every instance to every concept, at least `FLOOR`.

    Examples
    --------
    >>> distances(np.array([[1.0, 5.0]]), np.array([[3.0, 5.0]]), np.array([[0.5, 9.0]]))
    array([[1.]])
    """
    if len(points) == 0:
        return np.empty((len(X), 0))
    centre = points.mean(axis=0)  # squares of numbers far from 0 would lose digits
    Z = X - centre
    return _products(np.hstack([Z * Z, Z]), points - centre, scales)


def _products(squares_and_values: np.ndarray, points: np.ndarray, scales: np.ndarray) -> np.ndarray:
    s2 = scales * scales
    Q = squares_and_values @ np.hstack([s2, -2.0 * s2 * points]).T
    Q += (s2 * points * points).sum(axis=1)
    return np.maximum(Q, FLOOR, out=Q)


def absence(Q: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return p, 1 - p and -log(1 - p) from q, the last with all its digits also where p is small.

    Examples
    --------
    >>> p, rest, u = absence(np.array([np.log(2.0), 50.0]))
    >>> float(rest[0]), bool(u[1] == p[1])
    (0.5, True)
    """
    p = np.exp(-Q)
    rest = 1.0 - p
    return p, rest, np.where(p < _SMALL, p * (1.0 + p * (0.5 + p / 3.0)), -np.log(rest))


def log_odds(Q: np.ndarray) -> np.ndarray:
    """Logarithm of p / (1 - p) from q.

    Examples
    --------
    >>> log_odds(np.array([np.log(2.0), 1000.0]))
    array([    0., -1000.])
    """
    return absence(Q)[2] - Q


def noisy_or(Q: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every bag and concept ``log P`` and ``u = -log(1 - P)``, ``P = 1 - prod(1 - p)``; u of instances.

    Examples
    --------
    >>> half = np.full((2, 1), np.log(2.0))
    >>> log_P, u, _ = noisy_or(half, np.array([0, 2]))
    >>> float(np.exp(log_P[0, 0])), float(np.exp(-u[0, 0]))
    (0.75, 0.25)
    """
    each = absence(Q)[2]
    u = segment_sum(each, offsets)
    far = u < _TINY
    log_P = np.log(-np.expm1(-np.maximum(u, _TINY)))
    if far.any():
        log_P = np.where(far, segment_logsumexp(-Q, offsets), log_P)
    return log_P, u, each


class NoisyOr:
    """Negative logarithm of the diverse density of many concepts, and its gradient.

    Called with ``theta`` of shape (n_concepts, 2 n_features); the numbers of the concepts, the second
    argument, are of no interest here.
    """

    def __init__(self, X: np.ndarray, offsets: np.ndarray, y: np.ndarray) -> None:
        sizes = np.diff(offsets)
        inside = np.repeat(y > 0, sizes)
        self.offsets = np.concatenate([[0], np.cumsum(sizes[y > 0])])  # of positive bags alone
        self.centre = X.mean(axis=0)
        Z = X - self.centre
        A = np.hstack([Z * Z, Z])
        self.inside, self.outside = A[inside], A[~inside]

    def __call__(self, theta: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values (n_concepts,) and gradients, of the shape of ``theta``."""
        h, s = np.hsplit(theta, 2)
        h = h - self.centre
        value, total, sums = np.zeros(len(theta)), np.zeros(len(theta)), np.zeros(theta.shape)
        for A, C in self._derivatives(h, s, value):  # by q
            total += C.sum(axis=0)
            sums += C.T @ A
        second, first = np.hsplit(sums, 2)
        return value, _gradient(h, s, first, second, total[:, None])

    def _derivatives(
        self, h: np.ndarray, s: np.ndarray, value: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Blocks of instances and the derivative of the value by their q; adds up the value."""
        n_rows = max(1, _CELLS // len(h))
        for a, b in runs(self.offsets, n_rows):
            offsets = self.offsets[a : b + 1]
            A = self.inside[offsets[0] : offsets[-1]]
            Q = _products(A, h, s)
            log_P, u, each = noisy_or(Q, offsets - offsets[0])
            value -= log_P.sum(axis=0)
            # 1 / (expm1(u) expm1(q)), of which neither factor need be a number
            yield A, np.exp(each - Q - np.repeat(u + log_P, np.diff(offsets), axis=0))
        for start in range(0, len(self.outside), n_rows):
            A = self.outside[start : start + n_rows]
            p, rest, each = absence(_products(A, h, s))
            value += each.sum(axis=0)
            yield A, -p / rest


class OnePerBag:
    """What one instance per bag costs, of every concept its own instances: the M-step of EM-DD.

    ``Z`` has shape (n_concepts, n_bags, n_features); bags come positive ones first, and ``weights``
    (n_concepts, n_positive) says how much each of those counts. The value is the sum of q over them and of
    -log(1 - p) over the others.
    """

    def __init__(self, Z: np.ndarray, weights: np.ndarray) -> None:
        self.centre = Z.mean(axis=(0, 1))
        Z = Z - self.centre
        self.A = np.concatenate([Z * Z, Z], axis=2)
        self.weights = weights

    def __call__(self, theta: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values and gradients of the concepts with these numbers."""
        h, s = np.hsplit(theta, 2)
        h = h - self.centre
        s2 = s * s
        V, own = np.hstack([s2, -2.0 * s2 * h]), (s2 * h * h).sum(axis=1)
        value, total, sums = np.empty(len(theta)), np.empty((len(theta), 1)), np.empty(theta.shape)
        # instances are read twice, for q and for the gradient: the second time from the cache
        at_a_time = max(1, _CHOSEN // self.A[0].size)
        for a in range(0, len(which), at_a_time):
            some = slice(a, a + at_a_time)
            value[some], total[some] = self._some(which[some], V[some], own[some], sums[some])
        second, first = np.hsplit(sums, 2)
        return value, _gradient(h, s, first, second, total)

    def _some(
        self, which: np.ndarray, V: np.ndarray, own: np.ndarray, sums: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values of some concepts and sums of derivatives by q; fills their sums with the instances."""
        weights = self.weights[which]
        n_positive = weights.shape[1]
        Q = np.empty((len(which), self.A.shape[1]))
        for row, k in enumerate(which):
            np.dot(self.A[k], V[row], out=Q[row])
        Q += own[:, None]
        p, rest, each = absence(np.maximum(Q[:, n_positive:], FLOOR))
        C = np.concatenate([weights, -p / rest], axis=1)
        for row, k in enumerate(which):
            np.dot(C[row], self.A[k], out=sums[row])
        return (weights * Q[:, :n_positive]).sum(axis=1) + each.sum(axis=1), C.sum(axis=1)[:, None]


def _gradient(
    h: np.ndarray, s: np.ndarray, first: np.ndarray, second: np.ndarray, total: np.ndarray
) -> np.ndarray:
    """By h and s, from sums of x, of x^2 and of 1, each times the derivative by q."""
    return np.hstack(
        [-2.0 * s * s * (first - h * total), 2.0 * s * (second - 2.0 * h * first + h * h * total)]
    )
