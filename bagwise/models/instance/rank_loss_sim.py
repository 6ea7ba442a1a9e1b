"""Rank-loss support instance machines: linear instance scores that rank a bag's labels above the others."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.base import NO_LABEL, MIMLClassifier, Traits
from bagwise.base.parameters import Choice, Flag, Number, Whole
from bagwise.compute.calibration import best_offset
from bagwise.compute.optim import minimise
from bagwise.compute.scaling import apply_scaling, learn_scaling
from bagwise.compute.segment import segment_argmax, segment_max, segment_softmax
from bagwise.compute.threads import product_size, small_products
from bagwise.models.instance.kernels import rank_hinge
from bagwise.models.svm.base import bag_matrix


class RankLossSIM(MIMLClassifier):
    r"""Linear scores of instances, learned so that support instances rank the labels of each bag.

    A bag speaks for a label through one support instance: the best instance of the bag for that label, or a
    mean of all weighted by the softmax of their scores. The loss counts pairs of a label inside and a label
    outside the bag's set that are not a margin of 1 apart.

    Parameters
    ----------
    alpha : float, default=1e-3
        Regularisation lambda: ``alpha / 2 * |W|^2`` beside the mean loss of a bag.
    support : {"softmax", "max"}, default="softmax"
        The support instance: "softmax" weights instances smoothly, "max" takes the best one.
    solver : {"lbfgs", "pegasos"}, default="lbfgs"
        How the weights of a phase are found: "lbfgs" minimises the objective with a smoothed hinge to
        convergence; "pegasos" takes ``max_iter`` subgradient steps as in [1]_.
    n_phases : int, default=10
        Limit R on phases; each freezes the support instances of the current weights.
    max_iter : int, default=100
        Limit T on steps within a phase.
    tol : float, default=1e-4
        Stop when a phase changes the objective by no larger share.
    smoothing : float, default=0.5
        Width of the quadratic part of the hinge in "lbfgs".
    standardize : bool, default=True
        Whether to learn on standardised features (sparse ones share one spread and are not centred);
        ``coef_`` and ``intercept_`` always speak of the features as given.
    threshold : "auto" or float, default="auto"
        Score above which a label is predicted; "auto" takes the one number for all labels that has least
        Hamming loss on the training bags.
    set_rule : {"threshold", "union"}, default="threshold"
        What ``predict`` returns for label sets: labels above the threshold, or all labels that are the best
        of some instance.

    Attributes
    ----------
    coef_ : ndarray of shape (n_labels, n_features)
        Weights.
    intercept_ : ndarray of shape (n_labels,)
        Intercepts.
    threshold_ : float
        What is taken off all scores, so that 0 divides predicted labels from others.
    objective_ : ndarray of shape (n_iter_ + 1,)
        Objective with the hinge as it is, at zero weights and after each phase. It may rise: new support
        instances make another problem.
    n_iter_ : int
        Number of phases.

    Notes
    -----
    With the scores :math:`f_l(x) = w_l \cdot x` and a support instance :math:`\hat x_{bl}` the objective is

    .. math::

        \frac{\lambda}{2} |W|^2 + \frac{1}{B} \sum_b \frac{1}{|Y_b| |\bar Y_b|}
        \sum_{p \in Y_b} \sum_{q \notin Y_b} \max(0, 1 - w_p \cdot \hat x_{bp} + w_q \cdot \hat x_{bq})

    where x holds a constant feature, so intercepts are penalised, too. lambda is ``alpha``, R ``n_phases``
    and T ``max_iter``. The first phase starts from zero weights, hence from the mean of each bag.
    ``decision_function`` is the largest score of the bag's instances less ``threshold_``. Bags that carry no
    label or all labels have no pairs and say nothing. A single label (1-D ``y`` of two classes) is ranked
    against a label of constant score 0, which is the maximum-margin form of multi-instance learning.

    **Differences from [1]**: (1) "lbfgs" is the default. Pegasos begins each phase with a step of length
    1 / lambda, from which T steps do not recover when lambda is small. (2) Features are standardised inside.
    (3) The rule for label sets is not given there; see ``threshold`` and ``set_rule``. With
    ``set_rule="union"`` ``predict`` follows the instances, and the sign of ``decision_function`` does not.

    References
    ----------
    .. [1] F. Briggs, X. Z. Fern, R. Raich: Rank-loss support instance machines for MIML instance annotation.
       KDD 2012.

    Examples
    --------
    >>> from bagwise import load_dataset
    >>> data = load_dataset("digits", n_bags=200)
    >>> model = RankLossSIM().fit(data.bags, data.Y)
    >>> bool((model.annotate(data.bags, data.Y) == data.instance_Y).mean() > 0.9)  # sets known, labels not
    True
    """

    traits = Traits(instances="model")

    _parameters = {
        "alpha": Number(above=0),
        "support": Choice("softmax", "max"),
        "solver": Choice("lbfgs", "pegasos"),
        "n_phases": Whole(1),
        "max_iter": Whole(1),
        "tol": Number(0),
        "smoothing": Number(above=0),
        "standardize": Flag(),
        "threshold": (Choice("auto"), Number()),
        "set_rule": Choice("threshold", "union"),
    }

    def __init__(
        self,
        alpha=1e-3,
        *,
        support="softmax",
        solver="lbfgs",
        n_phases=10,
        max_iter=100,
        tol=1e-4,
        smoothing=0.5,
        standardize=True,
        threshold="auto",
        set_rule="threshold",
    ):
        self.alpha = alpha
        self.support = support
        self.solver = solver
        self.n_phases = n_phases
        self.max_iter = max_iter
        self.tol = tol
        self.smoothing = smoothing
        self.standardize = standardize
        self.threshold = threshold
        self.set_rule = set_rule

    @classmethod
    def _test_params(cls):
        return {"alpha": 0.01, "n_phases": 5}

    def _fit(self, bags, Y):
        scaling = learn_scaling(bags.X, "standard" if self.standardize else "none")
        X = apply_scaling(bags.X, scaling, bags.dtype)
        problem = RankLossProblem(X, bags.offsets, Y, self.alpha, self.support)
        # subgradient steps take the hinge as it is
        phase, smoothing = (lbfgs_phase, self.smoothing) if self.solver == "lbfgs" else (pegasos_phase, 0.0)
        with small_products(product_size(X, Y.shape[1])):
            W, history = run_phases(problem, phase, self.n_phases, self.max_iter, smoothing, self.tol)
        self.coef_, self.intercept_ = scaling.weights_as_given(W[:, :-1], W[:, -1])
        self.objective_, self.n_iter_ = np.array(history), len(history) - 1
        self.threshold_ = 0.0
        auto = self.threshold == "auto"
        self.threshold_ = float(best_offset(self._scores(bags), Y) if auto else self.threshold)

    def _instance_scores(self, bags):
        return np.asarray(bags.X @ self.coef_.T) + (self.intercept_ - self.threshold_)

    def _scores(self, bags):
        return segment_max(self._instance_scores(bags), bags.offsets)

    def _predict(self, bags, scores):
        if self.set_rule == "threshold" or self._target != "multilabel":
            return scores > 0
        labels = self._annotate(bags, None)
        chosen = np.zeros(scores.shape, dtype=bool)
        carried = labels != NO_LABEL
        chosen[bags.index[carried], labels[carried]] = True
        return chosen


# ----------------------------------------------------------------------
# The two solvers of rank-loss support instance machines: phases of convex problems over frozen supports


class RankLossProblem:
    """The objective on scaled features; ``W`` has a column for every feature and one for the constant.

    ``alpha`` is the weight lambda of ``|W|^2 / 2``, ``support`` says what stands for a bag.
    """

    def __init__(self, X: Any, offsets: np.ndarray, Y: np.ndarray, alpha: float, support: str):
        self.X = X.astype(np.float64, copy=False)
        self.offsets, self.alpha, self.support = offsets, alpha, support
        self.index = np.repeat(np.arange(len(Y)), np.diff(offsets))
        # Sums over bags as a product: thousands of small ones do not pay for waking threads each time.
        self.pool = bag_matrix(offsets, np.ones(int(offsets[-1])))
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
    limits: dict[str, Any] = {"max_iter": n_steps, "max_calls": 2 * n_steps, "least_fall": 1e-13, "tol": 1e-8}
    return minimise(lambda V: problem.frozen(V, A, smoothing), W, **limits).x


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
    """Alternate between support instances and weights; the objective of zero ones and after every phase."""
    W = np.zeros(problem.shape)
    history = [problem.objective(W)]
    for _ in range(n_phases):
        W = phase(problem, W, problem.weights(W), n_steps, smoothing)
        history.append(problem.objective(W))
        if abs(history[-2] - history[-1]) <= tol * max(abs(history[-2]), abs(history[-1])):
            break
    return W, history
