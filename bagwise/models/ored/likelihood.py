"""The penalised likelihood of label sets under the union model, climbed by L-BFGS; by EM in `em`.

A problem is told by arrays: features ``X`` (N, d), ``offsets``, candidate matrix ``Y`` (B, C) and bag
weights. Parameters are one array ``W`` (C, d + 1) whose last column is the intercept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import logsumexp

from bagwise.bags import instance_rows
from bagwise.compute.optim import minimise
from bagwise.models.ored.union_posterior import EXACT, UnionPass, union_posterior


class UnionLikelihood:
    """Value and gradient of ``sum_b weight_b log p(Y_b | X_b, W) - alpha / 2 |W|^2``, intercepts unpenalised.

    A background class, where there is one, is the last column of ``Y`` and may be carried by any
    instance of any bag without showing in the bag's label set. It needs no algorithm of its own: a
    phantom instance that is background for certain makes the background part of every union.

    Parameters
    ----------
    X : ndarray or CSR of shape (N, d)
        Features of the instances.
    offsets : ndarray of shape (B + 1,)
        Where bags begin.
    Y : ndarray of int8, shape (B, C)
        Label sets; with a background, its column holds ones.
    weights : ndarray of shape (B,)
        Weights of the bags.
    alpha : float
        Strength of the penalty.
    fit_intercept : bool
        Whether the last column of ``W`` may move.
    candidates : ndarray of bool, shape (B,)
        Bags whose set is taken as candidates only: ``sum_i log sum_{c in Y} p_i(c)``.
    known : Known, optional
        Instances of which some classes are ruled out; their posterior and the likelihood heed it exactly.
    """

    def __init__(
        self,
        X,
        offsets,
        Y,
        weights,
        *,
        alpha,
        fit_intercept,
        background,
        candidates,
        method,
        max_labels,
        n_threads,
        known=None,
    ):
        self.known = known
        self.X, self.offsets, self.Y, self.weights = X, offsets, Y, weights
        # CSR both ways: a product with the transpose of CSR scatters, one with its own CSR gathers
        self.Xt = X.T.tocsr() if sparse.issparse(X) else X.T
        self.alpha, self.fit_intercept = alpha, fit_intercept
        self.phantoms = Phantoms(offsets) if background else None
        self.candidates = candidates
        longer = offsets if self.phantoms is None else self.phantoms.offsets
        self.passes = UnionPass(longer, Y, method=method, max_labels=max_labels, n_threads=n_threads)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the parameters."""
        return self.Y.shape[1], self.X.shape[1] + 1

    def logits(self, W: np.ndarray) -> np.ndarray:
        """Scores of every class for every instance."""
        return np.ascontiguousarray(self.X @ W[:, :-1].T.astype(self.X.dtype) + W[:, -1], dtype=np.float64)

    def residual(self, logits: np.ndarray, weights: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        """Weighted log-likelihood and its gradient by the logits: posterior less prior, times weight."""
        given = self.weights if weights is None else weights
        if self.known is not None:
            return self._known_residual(logits, given)
        return self._union_residual(logits, given)

    def _known_residual(self, logits: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """With A the classes left to an instance, p(y) = p(A) p(y | A): the union is over p(y | A) alone."""
        rows, allowed = self.known
        clamped = self.known.clamped(logits)
        value, R = self._union_residual(clamped, weights)
        w = weights[np.searchsorted(self.offsets, rows, side="right") - 1]
        log_p = logits[rows] - log_normaliser(logits[rows])[:, None]
        inside = np.where(allowed, log_p, -np.inf)
        mass = log_normaliser(inside)
        R[rows] += w[:, None] * (np.exp(inside - mass[:, None]) - np.exp(log_p))
        return value + float(w @ mass), R

    def _union_residual(self, logits: np.ndarray, given: np.ndarray) -> tuple[float, np.ndarray]:
        weights = np.where(self.candidates, 0.0, given)
        if self.phantoms is None:
            R = np.empty_like(logits)
            loglik, status = self.passes.run(logits, weights, R, residual=True)
        else:
            extended = self.phantoms.add(logits)
            out = np.empty_like(extended)
            loglik, status = self.passes.run(extended, weights, out, residual=True)
            R = out[self.phantoms.real]
        counted = (status == EXACT) & (weights > 0)
        value = float(weights[counted] @ loglik[counted])
        if self.candidates.any():
            value += self._add_candidates(logits, given, R)
        return value, R

    def _add_candidates(self, logits: np.ndarray, weights: np.ndarray, R: np.ndarray) -> float:
        which = np.flatnonzero(self.candidates & (weights > 0))
        rows, offsets = instance_rows(self.offsets, which)
        bag = np.repeat(which, np.diff(offsets))
        log_p = logits[rows] - log_normaliser(logits[rows])[:, None]
        inside = np.where(self.Y[bag] > 0, log_p, -np.inf)
        mass = logsumexp(inside, axis=1)
        usable = np.isfinite(mass)  # an empty set without a background has no candidates
        w = np.where(usable, weights[bag], 0.0)
        with np.errstate(invalid="ignore"):
            posterior = np.where(usable[:, None], np.exp(inside - mass[:, None]), 0.0)
        R[rows] = w[:, None] * (posterior - np.exp(log_p))
        return float(w[usable] @ mass[usable])

    def gradient(self, R: np.ndarray, W: np.ndarray) -> np.ndarray:
        """Gradient by the parameters, the penalty included."""
        G = np.empty(self.shape)
        G[:, :-1] = (self.Xt @ R.astype(self.X.dtype, copy=False)).T
        G[:, :-1] -= self.alpha * W[:, :-1]
        G[:, -1] = R.sum(axis=0) if self.fit_intercept else 0.0
        return G

    def penalty(self, W: np.ndarray) -> float:
        """The penalty on the weights."""
        return 0.5 * self.alpha * float(np.square(W[:, :-1]).sum())

    def value_and_gradient(self, W: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective and its gradient."""
        value, R = self.residual(self.logits(W))
        return value - self.penalty(W), self.gradient(R, W)


class Phantoms:
    """One extra row per bag, at its end, that carries the background (the last class) for certain."""

    def __init__(self, offsets: np.ndarray) -> None:
        n_bags = len(offsets) - 1
        self.offsets = offsets + np.arange(n_bags + 1)
        phantom = self.offsets[1:] - 1
        self.real = np.delete(np.arange(self.offsets[-1]), phantom)

    def add(self, logits: np.ndarray) -> np.ndarray:
        """Logits with the phantoms, to go with ``offsets``."""
        extended = np.full((self.offsets[-1], logits.shape[1]), -np.inf)
        extended[:, -1] = 0.0
        extended[self.real] = logits
        return extended


def posterior(logits, offsets, Y, *, background, method, max_labels, n_threads):
    """Posterior of every instance and log-likelihood of every bag; see `union_posterior`."""
    kernel = {"method": method, "max_labels": max_labels, "n_threads": n_threads}
    if not background:
        return union_posterior(logits, offsets, Y, **kernel)
    phantoms = Phantoms(offsets)
    Q, loglik, status = union_posterior(phantoms.add(logits), phantoms.offsets, Y, **kernel)
    return Q[phantoms.real], loglik, status


def climb_lbfgs(problem: Any, W: np.ndarray, *, max_iter: int, tol: float) -> tuple[Any, list[float]]:
    """Maximise the exact marginal likelihood by L-BFGS; returns parameters and the objective's path.

    ``problem`` has ``value_and_gradient(W)``, a ``shape`` and a ``weight``, that of all bags together.
    """
    total = max(problem.weight, np.finfo(float).tiny)  # per bag, so that tol means the same

    def loss(W: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = problem.value_and_gradient(W)
        return -value, -gradient

    options: dict[str, Any] = {"max_iter": max_iter, "tol": tol, "least_fall": 64 * np.finfo(float).eps}
    found = minimise(loss, W.reshape(problem.shape), unit=total, tries=50, **options)
    return found.x, [-value for value in found.history]


def log_normaliser(F: np.ndarray) -> np.ndarray:
    """Logarithm of sum_c exp(F_ic) of every row, without the overhead of SciPy for small arrays."""
    top = F.max(axis=1)
    shifted = F - top[:, None]
    return np.log(np.exp(shifted, out=shifted).sum(axis=1)) + top
