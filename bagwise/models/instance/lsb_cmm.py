"""LSB-CMM: a mixture with logistic stick-breaking gates that learns from sets of candidate labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import digamma, expit, gammaln, log_expit, logsumexp
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from bagwise.base import Traits
from bagwise.base.parameters import Choice, Flag, Number, Whole
from bagwise.compute.scaling import apply_scaling, learn_scaling
from bagwise.compute.threads import product_size, small_products
from bagwise.models._shared.instance_softmax import NEVER, InstanceSoftmaxClassifier
from bagwise.models.svm.base import bag_matrix

_PER_LABEL = 5  # components per label of the published settings
_CELLS = 1 << 22  # gate probabilities computed at a time in prediction


class LSBCMM(InstanceSoftmaxClassifier):
    r"""Mixture of regions of the feature space, each with its own distribution over labels.

    Every instance takes its bag's label set as candidates, of which one is right. That all labels of the set
    must occur in the bag is not used; `ORedLogisticRegression` uses it.

    Parameters
    ----------
    sigma2 : float, default=10.0
        Variance of the normal prior of gate weights on standardised features; intercepts are free.
    alpha : float, default=0.05
        Parameter of the Dirichlet prior of each component's label distribution; small values make
        components prefer few labels.
    n_components : int or "auto", default="auto"
        Number K of components; "auto" is five per label that occurs.
    max_iter : int, default=100
        Limit on EM iterations.
    tol : float, default=1e-4
        Stop when the mean bound of three iterations exceeds that of the three before by no larger share;
        after ten at the earliest.
    standardize : bool, default=True
        Whether to learn on standardised features (sparse ones share one spread and are not centred);
        ``gate_coef_`` and ``gate_intercept_`` always speak of the features as given.
    decision : {"calibrated", "union"}, default="calibrated"
        How ``predict`` decides. "calibrated": a sigmoid per label of the log-odds of a bag is learned on
        held-out bags (three folds; with more than 2,000 bags one third, once), ``predict_proba`` is that
        sigmoid and ``predict`` takes what is above one half. "union": ``predict`` takes the labels given to
        instances as in [1]_, and ``predict_proba`` is not calibrated. Scores are the same.

    Attributes
    ----------
    gate_coef_ : ndarray of shape (n_components - 1, n_features)
        Weights of the gates, in the order in which the stick is broken.
    gate_intercept_ : ndarray of shape (n_components - 1,)
        Their intercepts.
    label_counts_ : ndarray of shape (n_components, n_labels)
        Parameters of the Dirichlet posterior of every component: prior plus expected counts. Labels without a
        training bag hold 0. One more column for instances without a label if ``has_background_``.
    has_background_ : bool
        Whether the last column of ``label_counts_`` stands for instances of bags without any label.
    objective_ : ndarray of shape (n_iter_,)
        Variational lower bound on the penalised log-likelihood at each iteration; it never falls.
    n_iter_ : int
        Number of EM iterations.
    decision_slope_, decision_intercept_ : ndarray of shape (n_labels,) or None
        Calibration: log-odds of a label in a bag are ``slope * log-odds of its best instance + intercept``.

    Notes
    -----
    With gates :math:`v_k(x) = \sigma(w_k \cdot x + b_k)`, the last of them 1, component k has probability
    :math:`\phi_k(x) = v_k(x) \prod_{j<k} (1 - v_j(x))` and labels are drawn from
    :math:`\theta_k \sim Dir(\alpha)`; instance i carries some label of its bag's set :math:`Y_{b(i)}`.
    EM with a Dirichlet posterior of each :math:`\theta_k` climbs the bound

    .. math::

        \sum_i \log \sum_k \phi_k(x_i) \sum_{c \in Y_{b(i)}} \exp E[\log \theta_{kc}]
        - \sum_k KL(Dir(\hat\alpha_k) \| Dir(\alpha)) - \sum_k |w_k|^2 / (2 \sigma^2)

    :math:`\hat\alpha` is ``label_counts_``, K ``n_components``. An instance carries label c with probability
    :math:`\sum_k \phi_k(x) \hat\alpha_{kc} / \sum_{c'} \hat\alpha_{kc'}`, a bag with the largest of its
    instances. Scores are margins between logarithms of these: positive exactly if the label is in the union
    of the labels given to instances. That union is too large where a bag has many instances, each of which
    may err; hence the calibrated decision. With one label the score is the calibrated log-odds. EM starts
    with component k preferring label k mod L, so the order of labels matters.

    **Differences from [1]**: (1) The M-step takes one Newton step for all gates together, solved by conjugate
    gradients and shortened gate by gate where needed, instead of fitting each gate to convergence; the bound
    still never falls. (2) Bags without labels, which [1]_ does not know, give their instances a class of
    their own, background, which is no candidate in other bags: as a candidate everywhere it would explain
    everything. (3) Labels that never occur get probability 0.

    References
    ----------
    .. [1] L. Liu, T. G. Dietterich: A conditional multinomial mixture model for superset label learning.
       NIPS 2012.

    Examples
    --------
    >>> from bagwise import load_dataset
    >>> data = load_dataset("digits", n_bags=200)
    >>> model = LSBCMM(max_iter=30).fit(data.bags, data.Y)
    >>> bool((model.annotate(data.bags, data.Y) == data.instance_Y).mean() > 0.8)  # instance labels not shown
    True
    """

    traits = Traits(instances="model", probabilities=True, label_equivariant=False)

    _parameters = {
        "sigma2": Number(above=0),
        "alpha": Number(above=0),
        "n_components": (Choice("auto"), Whole(1)),
        "max_iter": Whole(1),
        "tol": Number(0),
        "standardize": Flag(),
        "decision": Choice("calibrated", "union"),
    }

    def __init__(
        self,
        sigma2=10.0,
        *,
        alpha=0.05,
        n_components="auto",
        max_iter=100,
        tol=1e-4,
        standardize=True,
        decision="calibrated",
    ):
        self.sigma2 = sigma2
        self.alpha = alpha
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.standardize = standardize
        self.decision = decision

    @classmethod
    def _test_params(cls):
        return {"max_iter": 30}

    def _fit(self, bags, Y):
        empty = ~Y.any(axis=1)
        self.has_background_ = bool(empty.any())
        candidates = np.column_stack([Y, empty]) if self.has_background_ else Y
        seen = np.flatnonzero(candidates.any(axis=0))
        K = _PER_LABEL * len(seen) if self.n_components == "auto" else int(self.n_components)
        scaling = learn_scaling(bags.X, "standard" if self.standardize else "none")
        X = apply_scaling(bags.X, scaling, bags.dtype)
        model = CandidateModel(X, bags.offsets, candidates[:, seen], self.alpha, self.sigma2)
        with small_products(product_size(X, K)):
            W, counts, history = run_em(model, K, self.max_iter, self.tol)
        self.gate_coef_, self.gate_intercept_ = scaling.weights_as_given(W[:, :-1], W[:, -1])
        self.label_counts_ = np.zeros((K, candidates.shape[1]))
        self.label_counts_[:, seen] = counts
        self.objective_, self.n_iter_ = np.array(history), len(history)
        self.decision_slope_ = self.decision_intercept_ = None
        if self.decision == "calibrated" and self._target != "multiclass":

            def refit(train):
                model = clone(self).set_params(decision="union")
                model._fit(bags[train], Y[train])
                return model

            self._learn_decision(bags, Y, None, refit)

    @property
    def _n_labels(self):
        return self.label_counts_.shape[1] - self.has_background_

    def gate_probabilities(self, X):
        """Probability of every component at every instance.

        Returns
        -------
        ndarray of shape (n_instances, n_components)
        """
        check_is_fitted(self)
        return self._gates(self._as_bags(X, reset=False).X)

    def _gates(self, X):
        return np.exp(log_gates(np.asarray(X @ self.gate_coef_.T, dtype=np.float64) + self.gate_intercept_))

    def _logits(self, bags):
        """Logarithms of label probabilities: normalised already, so the softmax returns them as they are."""
        theta = self.label_counts_ / self.label_counts_.sum(axis=1, keepdims=True)
        P = np.empty((bags.n_instances, theta.shape[1]))
        rows = max(1, _CELLS // len(theta))
        for start in range(0, len(P), rows):
            P[start : start + rows] = self._gates(bags.X[start : start + rows]) @ theta
        return np.log(np.maximum(P, np.exp(NEVER)))


# ----------------------------------------------------------------------
# EM of the logistic stick-breaking conditional multinomial model, in products of whole matrices


_SMALLEST = -700.0  # log of the smallest ratio between two label probabilities of one component
_MOST_CG, _CG_TOL, _MOST_HALVINGS = 10, 0.1, 10
_FIRST_STEPS, _STEPS = 5, 1  # Newton steps of the first M-step, which starts from nothing, and of the others


def log_gates(U: np.ndarray) -> np.ndarray:
    """Logarithms of gate probabilities (N, K) from the K - 1 logits: log v_k + sum_{j<k} log(1 - v_j)."""
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
    """Instances, of scaled features, whose label is one of the candidates ``Y`` of their bag, one at least.

    ``alpha`` is that of the Dirichlet prior, ``sigma2`` the variance of the prior of gate weights; intercepts
    are free.
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
        self.pool = bag_matrix(offsets, np.ones(n))
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
    """Alternate E- and M-steps: gates, parameters of the Dirichlet posteriors, history of the bound.

    Gates are (n_components - 1, n_features + 1), intercepts last. The bound is that before every M-step but
    the first; it never falls.
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
