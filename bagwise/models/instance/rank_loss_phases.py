"""The two solvers of rank-loss support instance machines: phases of convex problems over frozen supports."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import minimize

from bagwise.compute.segment import segment_argmax, segment_max, segment_softmax
from bagwise.models.instance.rank_loss_kernels import rank_hinge


class RankLossProblem:
    """The objective on scaled features; ``W`` has a column for every feature and one for the constant.

    Parameters
    ----------
    X : array or CSR matrix of shape (n_instances, n_features)
        Scaled features.
    offsets : int array of shape (n_bags + 1,)
        Bag ``b`` owns the rows ``offsets[b]:offsets[b + 1]``.
    Y : int array of shape (n_bags, n_labels)
        Labels.
    alpha : float
        Weight lambda of ``|W|^2 / 2``.
    support : {"softmax", "max"}
        What stands for a bag.
    """

    def __init__(self, X: Any, offsets: np.ndarray, Y: np.ndarray, alpha: float, support: str):
        self.X, self.offsets, self.alpha, self.support = (
            X.astype(np.float64, copy=False),
            offsets,
            alpha,
            support,
        )
        n_rows = int(offsets[-1])
        self.index = np.repeat(np.arange(len(Y)), np.diff(offsets))
        # Sums over bags as a product: thousands of small ones do not pay for waking threads each time.
        self.pool = sparse.csr_array((np.ones(n_rows), np.arange(n_rows), offsets), shape=(len(Y), n_rows))
        # A single label has nothing to be ranked against but its absence, of constant score 0.
        self.alone = Y.shape[1] == 1
        self.Y = np.column_stack([Y, 1 - Y]) if self.alone else Y
        self.shape = (Y.shape[1], X.shape[1] + 1)

    def linear(self, W: np.ndarray) -> np.ndarray:
        """Linear scores of every instance."""
        return np.asarray(self.X @ W[:, :-1].T) + W[:, -1]

    def weights(self, W: np.ndarray) -> np.ndarray:
        """Share of every instance in the support instance of its bag and every label; the mean at W = 0."""
        F = self.linear(W)
        if self.support == "softmax" or not W.any():
            return segment_softmax(F, self.offsets)
        A = np.zeros_like(F)
        A[segment_argmax(F, self.offsets), np.arange(F.shape[1])] = 1.0
        return A

    def losses(self, G: np.ndarray, smoothing: float) -> tuple[float, np.ndarray]:
        """Mean loss over bags and its slope in the scores of bags."""
        if self.alone:
            G = np.column_stack([G, np.zeros(len(G))])
        losses, slopes = rank_hinge(G, self.Y, smoothing)
        return float(losses.mean()), slopes[:, : self.shape[0]] / len(G)

    def frozen(self, W: np.ndarray, A: np.ndarray, smoothing: float) -> tuple[float, np.ndarray]:
        """Objective over the support instances given by ``A``, and its (sub)gradient: convex in ``W``."""
        G = self.pool @ (A * self.linear(W))
        loss, slopes = self.losses(G, smoothing)
        D = A * slopes[self.index]
        gradient = self.alpha * W
        gradient[:, :-1] += np.asarray(self.X.T @ D).T
        gradient[:, -1] += D.sum(axis=0)
        return 0.5 * self.alpha * float(np.vdot(W, W)) + loss, gradient

    def objective(self, W: np.ndarray) -> float:
        """Objective with the hinge as it is and the support instances of ``W`` itself."""
        F = self.linear(W)
        if self.support == "softmax":
            G = self.pool @ (segment_softmax(F, self.offsets) * F)
        else:
            G = segment_max(F, self.offsets)
        return 0.5 * self.alpha * float(np.vdot(W, W)) + self.losses(G, 0.0)[0]


def lbfgs_phase(problem: RankLossProblem, W: np.ndarray, A: np.ndarray, n_steps: int, smoothing: float):
    """Minimise the smoothed objective over frozen support instances, from where the last phase ended."""

    def value_and_slope(w):
        value, gradient = problem.frozen(w.reshape(problem.shape), A, smoothing)
        return value, gradient.ravel()

    options = {"maxiter": n_steps, "maxfun": 2 * n_steps, "ftol": 1e-13, "gtol": 1e-8}
    return minimize(value_and_slope, W.ravel(), jac=True, method="L-BFGS-B", options=options).x.reshape(
        W.shape
    )


def pegasos_phase(problem: RankLossProblem, W: np.ndarray, A: np.ndarray, n_steps: int, smoothing: float):
    """Take subgradient steps of length 1 / (lambda t) over all bags, each projected to |W| <= lambda^-1/2.

    The first step has length 1 / lambda and forgets where the phase began.
    """
    alpha = problem.alpha
    for t in range(1, n_steps + 1):
        W = W - problem.frozen(W, A, smoothing)[1] / (alpha * t)
        length = np.sqrt(alpha) * np.linalg.norm(W)
        if length > 1.0:
            W = W / length
    return W


def run_phases(problem: RankLossProblem, phase, n_phases: int, n_steps: int, smoothing: float, tol: float):
    """Alternate between support instances and weights.

    Returns
    -------
    W : ndarray of shape (n_labels, n_features + 1)
        Weights after the last phase.
    history : list of float
        Objective of the zero weights and after every phase.
    """
    W = np.zeros(problem.shape)
    history = [problem.objective(W)]
    for _ in range(n_phases):
        W = phase(problem, W, problem.weights(W), n_steps, smoothing)
        history.append(problem.objective(W))
        if abs(history[-2] - history[-1]) <= tol * max(abs(history[-2]), abs(history[-1])):
            break
    return W, history
