"""What concepts cost: the objectives of diverse density and of its EM, for many concepts at once.

A concept is a point h and a scale per feature s, one row ``[h, s]`` of ``theta``. An instance x belongs to it
with probability ``p = exp(-q)``, ``q = sum_k s_k^2 (x_k - h_k)^2``. Distances of all instances to all
concepts are one matrix product, and so is the gradient, which is what makes many starts cheap. In many
dimensions p is often too small to be a number: a bag of which that is so is written in q alone.
"""

from __future__ import annotations

import math

import numpy as np

from bagwise.bags import runs
from bagwise.compute.aligned import frozen
from bagwise.compute.compiled import kernel, part
from bagwise.compute.segment import segment_max, segment_sum

FLOOR = 1e-10  # of q: an instance at the very point of a concept is a positive one almost surely
_TINY = 1e-200  # sums of probabilities below which their logarithms are summed instead
_CELLS = 1 << 16  # instances times concepts at a time: what stays in the cache


def distances(X: np.ndarray, points: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Squared scaled distance q of every instance to every concept, at least `FLOOR`."""
    if len(points) == 0:
        return np.empty((len(X), 0))
    centre = points.mean(axis=0)  # squares of numbers far from 0 would lose digits
    Q = _powers(X - centre) @ _coefficients(points - centre, scales)
    return np.maximum(Q, FLOOR, out=Q)


def _powers(Z: np.ndarray) -> np.ndarray:
    """Instances as their squares, values and ones: q is linear in these."""
    return np.hstack([Z * Z, Z, np.ones((len(Z), 1))])


def _coefficients(points: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Of the squares, values and ones in q, a column for every concept."""
    s2 = scales * scales
    own = (s2 * points * points).sum(axis=1, keepdims=True)
    return np.hstack([s2, -2.0 * s2 * points, own]).T


def absence(Q: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return p, 1 - p and -log(1 - p) from q, the last with all its digits also where p is small.

    Examples
    --------
    >>> p, rest, u = absence(np.array([np.log(2.0), 50.0]))
    >>> float(rest[0]), bool(u[1] == p[1])
    (0.5, True)
    """
    p = np.exp(-Q)
    return p, 1.0 - p, -np.log1p(-p)


def log_odds(Q: np.ndarray) -> np.ndarray:
    """Logarithm of p / (1 - p) from q."""
    return absence(Q)[2] - Q


def noisy_or(Q: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of every bag and concept ``log P`` and ``u = -log(1 - P)``, where ``P = 1 - prod(1 - p)``.

    Examples
    --------
    >>> half = np.full((2, 1), np.log(2.0))
    >>> log_P, u = noisy_or(half, np.array([0, 2]))
    >>> float(np.exp(log_P[0, 0])), float(np.exp(-u[0, 0]))
    (0.75, 0.25)
    """
    u = segment_sum(absence(Q)[2], offsets)
    return _log_presence(Q, offsets, u), u


def _log_presence(Q: np.ndarray, offsets: np.ndarray, u: np.ndarray) -> np.ndarray:
    """``log P`` from u, or from q where P is hardly a number."""
    far = u < _TINY
    log_P = np.log(-np.expm1(-np.maximum(u, _TINY)))
    if not far.any():
        return log_P
    top = segment_max(-Q, offsets)  # the logarithm of a sum by loops that are compiled anyway
    shares = np.exp(-Q - np.repeat(top, np.diff(offsets), axis=0))
    return np.where(far, top + np.log(segment_sum(shares, offsets)), log_P)


class NoisyOr:
    """Negative logarithm of the diverse density of many concepts, and its gradient.

    Called with ``theta`` of shape (n_concepts, 2 n_features); the numbers of the concepts, the second
    argument, are of no interest here. Everything of the size instances times concepts is written into the
    same room again: memory that is new at every call would cost more than what is done in it.
    """

    def __init__(self, X: np.ndarray, offsets: np.ndarray, y: np.ndarray) -> None:
        sizes = np.diff(offsets)
        inside = np.repeat(y > 0, sizes)
        self.offsets = np.concatenate([[0], np.cumsum(sizes[y > 0])])  # of positive bags alone
        self.bag_of = np.repeat(np.arange(len(self.offsets) - 1), sizes[y > 0])
        self.centre = X.mean(axis=0)
        A = _powers(X - self.centre)
        self.inside, self.outside = A[inside], A[~inside]
        self.room = np.empty((3, 0))

    def __call__(self, theta: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values (n_concepts,) and gradients, of the shape of ``theta``."""
        n_concepts, d = len(theta), theta.shape[1] // 2
        h, s = theta[:, :d] - self.centre, theta[:, d:]
        V = _coefficients(h, s)
        value, sums = np.zeros(n_concepts), np.zeros((n_concepts, 2 * d + 1))
        n_rows = max(1, _CELLS // n_concepts)
        for a, b in runs(self.offsets, n_rows):
            A = self.inside[self.offsets[a] : self.offsets[b]]
            sums += self._of_positive(A, V, a, b, value).T @ A
        for start in range(0, len(self.outside), n_rows):
            A = self.outside[start : start + n_rows]
            sums += self._of_negative(A, V, value).T @ A
        # sums over instances of x^2, of x and of 1, each times the derivative by q
        second, first, total = sums[:, :d], sums[:, d : 2 * d], sums[:, 2 * d :]
        by_h = -2.0 * s * s * (first - h * total)
        return value, np.hstack([by_h, 2.0 * s * (second - 2.0 * h * first + h * h * total)])

    def _of_positive(self, A: np.ndarray, V: np.ndarray, a: int, b: int, value: np.ndarray) -> np.ndarray:
        """Derivatives by q in the positive bags from a to b; adds what these cost to the value."""
        Q, p, rest = self._probabilities(A, V)
        offsets = self.offsets[a : b + 1] - self.offsets[a]
        each = np.negative(p, out=rest)
        u = segment_sum(np.negative(np.log1p(each, out=each), out=each), offsets)
        log_P = _log_presence(Q, offsets, u)
        value -= log_P.sum(axis=0)
        bag_of = self.bag_of[self.offsets[a] : self.offsets[b]] - a
        if u.min() < _TINY:  # 1 / (expm1(u) expm1(q)), of which neither factor need be a number
            return np.exp(each - Q - (u + log_P)[bag_of])
        np.divide(p, np.subtract(1.0, p, out=rest), out=p)
        return np.multiply(p, np.take(np.exp(-u - log_P), bag_of, axis=0, out=Q, mode="clip"), out=p)

    def _of_negative(self, A: np.ndarray, V: np.ndarray, value: np.ndarray) -> np.ndarray:
        """The same in instances of negative bags."""
        Q, p, rest = self._probabilities(A, V)
        np.subtract(1.0, p, out=rest)
        value -= np.log1p(np.negative(p, out=Q), out=Q).sum(axis=0)
        return np.negative(np.divide(p, rest, out=p), out=p)

    def _probabilities(self, A: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Room with q of every instance and concept, room with p, and room for more."""
        shape = len(A), V.shape[1]
        size = shape[0] * shape[1]
        if self.room.shape[1] < size:
            self.room = np.empty((3, size))
        Q, p, rest = (room[:size].reshape(shape) for room in self.room)
        np.maximum(np.matmul(A, V, out=Q), FLOOR, out=Q)
        return Q, np.exp(np.negative(Q, out=p), out=p), rest


class OnePerBag:
    """What one instance per bag costs, of every concept its own instances: the M-step of EM-DD.

    ``rows`` (n_concepts, n_bags) are the instances; bags come positive ones first, and ``weights``
    (n_concepts, n_positive) says how much each of those counts. The value is the sum of q over them and of
    -log(1 - p) over the others.
    """

    def __init__(self, X: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> None:
        self.X = frozen(np.asarray(X, dtype=np.float64))
        self.rows, self.weights = frozen(rows), frozen(weights)

    def __call__(self, theta: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values and gradients of the concepts with these numbers."""
        value, G = np.empty(len(theta)), np.zeros(theta.shape)
        _cost_of_chosen(self.X, self.rows, self.weights, frozen(which), frozen(theta), value, G)
        return value, G


@kernel(error_model="numpy")
def _cost_of_chosen(X, rows, weights, which, theta, value, G):
    """Fill values and gradients, which come as zeros.

    Every concept has other instances, so that there is no matrix product to share; instances stay in the
    cache from one concept to the next.
    """
    d = X.shape[1]
    for i in range(which.size):
        chosen, weight = rows[which[i]], weights[which[i]]
        h, s, first, second = theta[i, :d], theta[i, d:], G[i, :d], G[i, d:]
        total = 0.0
        for b in range(chosen.size):
            x = X[chosen[b]]
            slope = weight[b] if b < weight.size else 0.0  # the derivative by q
            if b < weight.size:
                if slope == 0.0:
                    continue
                total += slope * _one_distance(x, h, s)
            else:
                q = max(_one_distance(x, h, s), FLOOR)
                p = math.exp(-q)
                total -= math.log1p(-p)
                slope = -p / (1.0 - p)
            for k in range(d):
                t = x[k] - h[k]
                first[k] += slope * t
                second[k] += slope * t * t
        value[i] = total
        for k in range(d):
            first[k] *= -2.0 * s[k] * s[k]
            second[k] *= 2.0 * s[k]


# as in `reordered_dot`, terms may be added in any order that the compiler fixes
@part(fastmath={"reassoc", "contract"})
def _one_distance(x, h, s):
    q = 0.0
    for k in range(x.size):
        t = s[k] * (x[k] - h[k])
        q += t * t
    return q
