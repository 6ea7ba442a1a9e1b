"""MIMLBoost: labels become a feature of instances, and boosted machines vote instance by instance."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from sklearn.utils import check_random_state

from bagwise.base import Traits
from bagwise.base.parameters import Choice, Flag, Number, Seed, Whole
from bagwise.compute.segment import segment_mean, segment_sum
from bagwise.models.svm.base import SCALING, InstanceClassifier, gram, put_constants, resolve_gamma
from bagwise.models.svm.kernels_landmarks import Coupled, Solution, Span, landmark_span, maximise
from bagwise.utils.progress import progress

_WORTH_A_BAR = 1e8  # instances times landmarks times labels from which a terminal shows how far it is


class MIMLBoost(InstanceClassifier):
    r"""Turn every pair of a bag and a label into a bag of its own and boost machines that vote by instance.

    The pair of bag b and label l has the instances of b, each with the place of the label as one more
    feature, and is positive if b carries l. MIBoosting learns from these pairs.

    Parameters
    ----------
    n_rounds : int, default=25
        Most machines that are learned.
    gamma : float or "scale", default=1.0
        Of the kernel ``exp(-gamma |x - x'|^2)``, the place of the label included. The default suits features
        in [0, 1]; "scale" is one over the number of features and the variance of their scaled values.
    C : float, default=1.0
        Penalty of errors.
    resample : bool, default=True
        Whether each machine learns from as many rows as there are instances times labels, drawn by their
        weights as in the paper, or from all rows with their weights.
    n_landmarks : int, default=2000
        With more instances than this, machines are sought in the span of so many of them, those that miss
        least of the others. With fewer, nothing is left out.
    scaling : {"minmax", "standard", "l2", "none"}, default="minmax"
        What is done to instances first: features divided by their range, features with mean 0 and variance 1,
        instances divided by their length, or nothing.
    tol : float, default=1e-3
        A machine is done when its objective is proven to be this close, over its size, to the lowest.
    max_iter : int, default=2000
        Limit on the rounds of the solver in each machine.
    random_state : int, RandomState instance or None, default=None
        Seed of the draws.

    Attributes
    ----------
    votes_ : ndarray of shape (n_machines,)
        Weight of each machine's votes.
    landmarks_ : ndarray or CSR of shape (n_landmarks, n_features)
        Scaled instances whose kernels the machines add up.
    coef_ : ndarray of shape (n_landmarks, n_machines, n_labels)
        Their weights.
    intercept_ : ndarray of shape (n_machines,)
        Constants of the machines.
    kernel_error_ : float
        Largest squared distance of a training instance from the span of the landmarks; 0 with all of them.
    gamma_ : float
        The gamma that was used.
    errors_ : ndarray of shape (n_machines,)
        Weighted share of wrong votes of each machine in training.
    constant_votes_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. Such a label
        takes no part in learning: all machines vote so, on every instance.
    n_iter_ : int
        Machines.

    Notes
    -----
    With weights :math:`W_{bl}` of pairs, at first equal, a round draws rows by :math:`W_{bl} / n_b`, learns a
    machine :math:`h` with votes :math:`\pm 1`, and counts the share :math:`e_{bl}` of instances that vote
    wrongly. Its weight c minimises :math:`\sum W_{bl} \exp((2 e_{bl} - 1) c)`, by whose terms weights are
    multiplied. Rounds end when every :math:`e_{bl}` is at most 1/2 (that machine is kept with c = 1) or c is
    not positive. The score of a pair is :math:`\sum_t c_t \sum_i h_t(x_i, l)`, that of an instance
    :math:`\sum_t c_t h_t(x_i, l)`. These are sums of few different numbers: equal scores are common.

    The place of label l is :math:`r l / (L - 1)`, with r = 1, or :math:`\ln(d + 1) / \ln 50` where the number
    of features d is 50 or more. Neighbouring labels are therefore treated as similar: order matters.

    *Complexity.* A machine learns from N L rows (N instances, L labels), which a kernel machine takes
    :math:`(N L)^2` to :math:`(N L)^3` steps for. Here the kernel of rows is that of instances times that of
    places, and the solver works with each alone: :math:`N m^2` operations once and :math:`2 N m L` per
    round of the solver, with m landmarks (at most N); some 50 rounds a machine. Memory: 3 N m numbers.

    *Differences from* [1]_. (1) The machine is solved to a proven gap, by another method. (2) A machine
    without an error is kept; the released program forgets it, and answers nothing if it is the first. So is
    a first machine with c not positive. (3) Above ``n_landmarks`` instances, the span of some of them. (4)
    Labels that are constant in training are not learned. (5) Features are scaled by training instances.

    References
    ----------
    .. [1] Z.-H. Zhou, M.-L. Zhang: Multi-instance multi-label learning with application to scene
       classification. NIPS 2006.
    .. [2] X. Xu, E. Frank: Logistic regression and boosting for labeled bags of instances. PAKDD 2004.
       MIBoosting.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=60, random_state=0)
    >>> model = MIMLBoost(gamma=4.0, random_state=0).fit(data.bags, data.Y)
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.8)
    True
    >>> model.instance_scores(data.bags).shape == (data.bags.n_instances, data.Y.shape[1])
    True
    """

    traits = Traits(instances="model", label_equivariant=False)

    _parameters = {
        "n_rounds": Whole(1),
        "gamma": (Choice("scale"), Number(above=0)),
        "C": Number(above=0),
        "resample": Flag(),
        "n_landmarks": Whole(1),
        "scaling": SCALING,
        "tol": Number(above=0),
        "max_iter": Whole(1),
        "random_state": Seed(),
    }

    def __init__(
        self,
        n_rounds=25,
        *,
        gamma=1.0,
        C=1.0,
        resample=True,
        n_landmarks=2000,
        scaling="minmax",
        tol=1e-3,
        max_iter=2000,
        random_state=None,
    ):
        self.n_rounds = n_rounds
        self.gamma = gamma
        self.C = C
        self.resample = resample
        self.n_landmarks = n_landmarks
        self.scaling = scaling
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    @classmethod
    def _test_params(cls):
        return {"n_rounds": 4, "gamma": 2.0, "random_state": 0}

    def _learn(self, X, offsets, Y):
        self.gamma_ = resolve_gamma(self.gamma, X)
        # one score for all bags would lie amid those of other labels, which are as large as bags are
        self.constant_votes_, self.constant_scores_ = self.constant_scores_, np.full(Y.shape[1], np.nan)
        varies = np.isnan(self.constant_votes_)
        places = label_places(Y.shape[1], X.shape[1])[varies]
        self._closeness = np.exp(-self.gamma_ * np.square(places[:, None] - places))
        advice = "lower n_landmarks, or use MIMLFast or BagClassifier"
        span = landmark_span(X, "rbf", self.gamma_, self.n_landmarks, advice)
        machines, votes, errors = [], [], []
        if varies.any():
            enabled = float(X.shape[0]) * len(span.rows) * varies.sum() > _WORTH_A_BAR
            with progress("boosting", total=self.n_rounds, enabled=enabled) as advance:
                for machine, c, e in self._boost(span, offsets, Y[:, varies]):
                    machines.append(machine)
                    votes.append(c)
                    errors.append(e)
                    advance()
        self.landmarks_, self.kernel_error_ = X[span.rows], span.error
        self.votes_, self.errors_ = np.array(votes), np.array(errors)
        self.intercept_ = np.array([b for _, b in machines])
        self.coef_ = np.zeros((len(span.rows), len(machines), Y.shape[1]))
        for t, (coefficients, _) in enumerate(machines):
            self.coef_[:, t, varies] = span.to_landmarks @ coefficients
        self.n_iter_, self._width = len(machines), len(span.rows) + len(machines) * Y.shape[1]

    def _boost(self, span: Span, offsets, Y):
        """Machines (coefficients in the span, intercept), their weights and their weighted errors."""
        rng = check_random_state(self.random_state)
        problem = Coupled.of(span, self._closeness)
        sizes = np.diff(offsets)
        T = np.repeat(np.where(Y > 0, 1.0, -1.0), sizes, axis=0)
        W = np.full(Y.shape, 1.0 / Y.size)
        state = None
        for turn in range(self.n_rounds):
            shares = np.repeat(W / sizes[:, None], sizes, axis=0)
            weights = shares * T.size
            if self.resample:
                drawn = rng.multinomial(T.size, shares.ravel() / shares.sum())
                weights = drawn.reshape(T.shape).astype(np.float64)
            found, b = weighted_machine(
                problem, T, self.C * weights, start=state, tol=self.tol, max_iter=self.max_iter
            )
            state = found.state
            machine = problem.coefficients(found.B), b
            E = segment_mean(((found.values + b >= 0) != (T > 0)).astype(np.float64), offsets)
            error = float((W * E).sum())
            if (E <= 0.5).all():
                yield machine, 1.0, error
                return
            c = best_vote(W, E)
            if c <= 0:
                if turn == 0:
                    yield machine, 1.0, error
                return
            yield machine, c, error
            W = W * np.exp((2.0 * E - 1.0) * c)
            W /= W.sum()

    def _instance_score(self, X, offsets):
        m, n_machines, n_labels = self.coef_.shape
        unanimous = self.constant_votes_ * (self.votes_.sum() or 1.0)
        if n_machines == 0:  # every label is constant
            return np.tile(unanimous, (X.shape[0], 1))
        F = gram("rbf", self.gamma_, X, self.landmarks_) @ self.coef_.reshape(m, -1)
        H = F.reshape(X.shape[0], n_machines, n_labels) + self.intercept_[:, None] >= 0
        return put_constants(np.einsum("t,itl->il", self.votes_, np.where(H, 1.0, -1.0)), unanimous)

    def _score(self, X, offsets):
        S = segment_sum(self._instance_score(X, offsets), offsets)
        return np.where(S == 0, np.finfo(np.float64).tiny, S)  # a draw counts as predicted


# ----------------------------------------------------------------------
# What a round of MIMLBoost needs: places for labels, the vote's weight, and a machine with costs


def label_places(n_labels: int, n_features: int) -> np.ndarray:
    """Feature that stands for each label."""
    longest = 1.0 if n_features + 1 <= 50 else math.log(n_features + 1) / math.log(50)
    return longest * np.arange(n_labels) / max(n_labels - 1, 1)


def best_vote(W: np.ndarray, E: np.ndarray) -> float:
    """Weight c that minimises ``sum W exp((2 E - 1) c)``; 0 where no positive one lowers it.

    There must be an E above one half. With all right or all wrong it is that of AdaBoost.
    """
    a = 2.0 * E.ravel() - 1.0
    w = W.ravel()

    def slope(c: float) -> float:
        return float((w * a * np.exp(a * c - c * a.max())).sum())  # up to a positive factor

    if slope(0.0) >= 0.0:
        return 0.0
    high = 1.0
    while slope(high) < 0.0:
        high *= 2.0
    return float(brentq(slope, 0.0, high, xtol=1e-12))


def weighted_machine(
    problem: Coupled, T: np.ndarray, costs: np.ndarray, *, start=None, tol: float, max_iter: int
) -> tuple[Solution, float]:
    """Machine with an intercept over all rows, each with its own penalty; a penalty of 0 leaves a row out."""
    low, high = np.where(T > 0, 0.0, -costs), np.where(T > 0, costs, 0.0)

    def primal(F, penalty):
        b = best_intercept(F, T, costs)
        return penalty + float((costs * np.maximum(0.0, 1.0 - T * (F + b))).sum())

    found = maximise(
        problem,
        T,
        lambda B: np.clip(B, low, high),
        primal,
        balanced=True,
        tidy=lambda B: balanced_box(B, low, high),
        start=start,
        tol=tol,
        max_iter=max_iter,
    )
    return found, best_intercept(found.values, T, costs)


def best_intercept(F: np.ndarray, T: np.ndarray, costs: np.ndarray) -> float:
    """Intercept b that minimises ``sum costs max(0, 1 - T (F + b))``; the middle where an interval does."""
    used = costs.ravel() > 0
    at, cost, t = (T - F).ravel()[used], costs.ravel()[used], T.ravel()[used]  # where each slack begins
    order = np.argsort(at, kind="stable")
    at = at[order]
    slope = np.cumsum(cost[order]) - cost[t > 0].sum()  # right of each place
    total = cost.sum()
    first = int(np.searchsorted(slope, -1e-12 * total))
    last = int(np.searchsorted(slope, 1e-12 * total, side="right"))
    return 0.5 * float(at[min(first, len(at) - 1)] + at[min(last, len(at) - 1)])


def balanced_box(B: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Nearest matrix within limits whose entries add up to 0; the limits must allow one."""

    def total(shift: float) -> float:
        return float(np.clip(B - shift, low, high).sum())

    reach = float(np.abs(B).max() + max(high.max(), -low.min())) + 1.0
    return np.clip(B - brentq(total, -reach, reach, xtol=1e-14), low, high)
