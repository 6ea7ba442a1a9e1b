"""EM of the logistic stick-breaking conditional multinomial model, in products of whole matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import digamma, expit, gammaln, log_expit, logsumexp

_SMALLEST = -700.0  # log of the smallest ratio between two label probabilities of one component
_MOST_CG, _CG_TOL, _MOST_HALVINGS = 10, 0.1, 10
_FIRST_STEPS, _STEPS = 5, 1  # Newton steps of the first M-step, which starts from nothing, and of the others


def log_gates(U: np.ndarray) -> np.ndarray:
    """Logarithms of gate probabilities (N, K) from the K - 1 logits: log v_k + sum_{j<k} log(1 - v_j).

    Examples
    --------
    >>> np.exp(log_gates(np.zeros((1, 2))))
    array([[0.5 , 0.25, 0.25]])
    """
    result = np.zeros((U.shape[0], U.shape[1] + 1))
    log_v = log_expit(U)
    np.cumsum(log_v - U, axis=1, out=result[:, 1:])  # log(1 - v) = log v - u
    result[:, :-1] += log_v
    return result


def expected_log(counts: np.ndarray) -> np.ndarray:
    """E[log theta_kc] under Dirichlet distributions with these parameters, one per row."""
    return digamma(counts) - digamma(counts.sum(axis=1, keepdims=True))


def dirichlet_divergence(counts: np.ndarray, alpha: float) -> float:
    """Sum over rows of the divergence of Dirichlet(counts) from Dirichlet(alpha, ..., alpha)."""
    total, n = counts.sum(axis=1), counts.shape[1]
    normalisers = gammaln(total) - gammaln(counts).sum(axis=1) - gammaln(n * alpha) + n * gammaln(alpha)
    return float(normalisers.sum() + ((counts - alpha) * expected_log(counts)).sum())


class CandidateModel:
    """Instances whose label is one of their bag's candidates.

    Parameters
    ----------
    X : array or CSR matrix of shape (n_instances, n_features)
        Scaled features.
    offsets : int array of shape (n_bags + 1,)
        Bag ``b`` owns the rows ``offsets[b]:offsets[b + 1]``.
    Y : array of shape (n_bags, n_classes)
        Candidates, 0 or 1; at least one per bag.
    alpha : float
        Parameter of the Dirichlet prior.
    sigma2 : float
        Variance of the prior of gate weights; intercepts are free.
    """

    def __init__(self, X: Any, offsets: np.ndarray, Y: np.ndarray, alpha: float, sigma2: float):
        n = X.shape[0]
        if sparse.issparse(X):
            self.X = sparse.hstack([X, np.ones((n, 1))], format="csr", dtype=np.float64)
            self.squares = self.X.multiply(self.X).tocsr()
        else:
            self.X = np.column_stack([X, np.ones(n)]).astype(np.float64, copy=False)
            self.squares = np.square(self.X)
        self.index = np.repeat(np.arange(len(Y)), np.diff(offsets))
        self.pool = sparse.csr_array((np.ones(n), np.arange(n), offsets), shape=(len(Y), n))
        self.Y = Y.astype(np.float64)
        self.alpha = alpha
        self.ridge = np.append(np.full(X.shape[1], 1.0 / sigma2), 0.0)

    def logits(self, W: np.ndarray) -> np.ndarray:
        """Linear scores of every instance."""
        return np.asarray(self.X @ W.T)

    # ------------------------------------------------------------------ E-step

    def e_step(self, log_phi: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Posterior of components (N, K), expected counts of labels (K, L), and the sum of log normalisers.

        The posterior q(k, c) of component and label factors given the bag: summing c over the candidates
        first leaves products of (bags, labels) with (labels, components) instead of an array over all three.
        """
        E = expected_log(counts)
        top = E.max(axis=1)
        M = np.exp(np.maximum(E - top[:, None], _SMALLEST))
        T = self.Y @ M.T  # sum over candidates of exp E[log theta], but for exp(top)
        log_R = log_phi + (np.log(T) + top)[self.index]
        log_Z = logsumexp(log_R, axis=1, keepdims=True)
        Q = np.exp(log_R - log_Z)
        N = M * (((self.pool @ Q) / T).T @ self.Y)
        return Q, N, float(log_Z.sum())

    def bound(self, log_normalisers: float, W: np.ndarray, counts: np.ndarray) -> float:
        """Lower bound on the penalised log-likelihood at the best q for ``W`` and ``counts``."""
        penalty = 0.5 * float((self.ridge * np.square(W)).sum())
        return log_normalisers - dirichlet_divergence(counts, self.alpha) - penalty

    # ------------------------------------------------------------------ M-step

    def gate_losses(self, W: np.ndarray, U: np.ndarray, Q: np.ndarray, S: np.ndarray) -> np.ndarray:
        """Objective of every gate: -sum_n [q log v + (s - q) log(1 - v)] + |w|^2 / (2 sigma2)."""
        fit = np.einsum("nk,nk->k", S, np.logaddexp(0.0, U)) - np.einsum("nk,nk->k", Q, U)
        return fit + 0.5 * np.square(W) @ self.ridge

    def m_step(self, W: np.ndarray, U: np.ndarray, Q: np.ndarray, n_steps: int) -> tuple[Any, Any]:
        """Take Newton steps for all gates at once, each with its own step length; no gate gets worse."""
        if len(W) == 0:
            return W, U
        S = np.cumsum(Q[:, ::-1], axis=1)[:, :0:-1]  # mass that reaches gate k: sum over j >= k
        Q = Q[:, :-1]
        losses = self.gate_losses(W, U, Q, S)
        for _ in range(n_steps):
            V = expit(U)
            gradient = np.asarray(self.X.T @ (S * V - Q)).T + self.ridge * W
            step = -self._solve(S * V * (1.0 - V), gradient)
            ahead = self.logits(step)
            slope = np.einsum("kd,kd->k", gradient, step)
            length, new_losses = np.ones(len(W)), losses.copy()
            worse = np.arange(len(W))  # gates whose step is too long so far; only they are looked at again
            for _ in range(_MOST_HALVINGS):
                now, by = (slice(None) if len(worse) == len(W) else worse), length[worse]
                new_losses[worse] = self.gate_losses(
                    W[now] + by[:, None] * step[now], U[:, now] + by * ahead[:, now], Q[:, now], S[:, now]
                )
                worse = worse[~(new_losses[worse] <= losses[worse] + 1e-4 * by * slope[worse])]
                if len(worse) == 0:
                    break
                length[worse] *= 0.5
            length[worse], new_losses[worse] = 0.0, losses[worse]
            W, U, losses = W + length[:, None] * step, U + length * ahead, new_losses
        return W, U

    def _solve(self, D: np.ndarray, G: np.ndarray) -> np.ndarray:
        """Conjugate gradients for (X' diag(D_k) X + ridge) step_k = G_k, all k together."""
        diagonal = np.asarray(self.squares.T @ D).T + self.ridge
        inverse = 1.0 / np.maximum(diagonal, 1e-10)
        step, R = np.zeros_like(G), G.copy()
        Z = inverse * R
        P = Z.copy()
        rz = start = np.einsum("kd,kd->k", R, Z)
        for _ in range(_MOST_CG):
            HP = np.asarray(self.X.T @ (D * self.logits(P))).T + self.ridge * P
            curvature = np.einsum("kd,kd->k", P, HP)
            active = (curvature > 0.0) & (rz > _CG_TOL**2 * start)
            if not active.any():
                break
            rate = np.divide(rz, curvature, out=np.zeros_like(rz), where=active)[:, None]
            step += rate * P
            R -= rate * HP
            Z = inverse * R
            rz, before = np.einsum("kd,kd->k", R, Z), rz
            P = np.where(
                active[:, None],
                Z + np.divide(rz, before, out=np.zeros_like(rz), where=before > 0)[:, None] * P,
                0.0,
            )
        return step


def run_em(model: CandidateModel, n_components: int, max_iter: int, tol: float):
    """Alternate E- and M-steps.

    Returns
    -------
    W : ndarray of shape (n_components - 1, n_features + 1)
        Gates; the last column is the intercept.
    counts : ndarray of shape (n_components, n_classes)
        Parameters of the Dirichlet posteriors.
    history : list of float
        Bound before every M-step but the first; it never falls.
    """
    n, n_classes = model.X.shape[0], model.Y.shape[1]
    W = np.zeros((n_components - 1, model.X.shape[1]))
    U = np.zeros((n, n_components - 1))
    # the start: component k prefers label k mod L, all components equally likely everywhere
    counts = np.ones((n_components, n_classes))
    counts[np.arange(n_components), np.arange(n_components) % n_classes] = 11.0
    Q, N, _ = model.e_step(np.zeros((n, n_components)), counts)
    counts = model.alpha + N
    W, U = model.m_step(W, U, Q, _FIRST_STEPS)
    history: list[float] = []
    for _ in range(max_iter):
        Q, N, log_normalisers = model.e_step(log_gates(U), counts)
        history.append(model.bound(log_normalisers, W, counts))
        if len(history) >= 10:
            before, now = np.mean(history[-6:-3]), np.mean(history[-3:])
            if now - before < tol * abs(before):
                break
        counts = model.alpha + N
        W, U = model.m_step(W, U, Q, _STEPS)
    return W, counts, history
