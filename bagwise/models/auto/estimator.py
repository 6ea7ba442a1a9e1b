"""The default for people who ask which model: an ensemble for bags and instances."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from scipy.special import expit, log_expit
from sklearn.utils import check_random_state

from bagwise.bags import Bags, MultiViewBags, runs
from bagwise.base import NO_LABEL, MIMLClassifier, Traits, best_rows
from bagwise.base.parameters import JOBS, Choice, Flag, Number, Seed, Several
from bagwise.compute.calibration import fit_sigmoids, log_loss_sum, mixing_weights
from bagwise.compute.scaling import is_text
from bagwise.compute.threads import small_products, threads
from bagwise.models._shared.held_out import MultilabelKFold
from bagwise.models._shared.scores import constant_score, margins
from bagwise.models.auto.fit import MEMBERS, Plan, Task, ViewFit, plan_for
from bagwise.models.auto.fit_forest import Forest
from bagwise.models.auto.fit_instances import Forests, Logistics, Softmaxes
from bagwise.models.auto.fit_linear import LinearRanker, LinearRankers, Logistic, TermWeights
from bagwise.models.auto.fit_ridge import SetRidge
from bagwise.models.auto.predict import ViewModel
from bagwise.models.ored.predict import expectation
from bagwise.utils.progress import progress

# classes of which fitted members are made, for model files
PARTS = (
    *(ViewModel, SetRidge, Forest, Forests, Softmaxes, Logistics, Logistic, TermWeights),
    *(LinearRanker, LinearRankers),
)

LARGEST = 50_000  # bags that are learned from; more are sampled
ANSWERED = (
    10_000  # bags that members are compared on, and that those on instances answer for; more are sampled
)
FULL_BAGS = 5000  # effort="auto" is "full" up to so many
_TEXT_FACTOR = 2.5  # text may have so many times the instances for members on instances
_BLOCK = 100_000  # instances scored at a time, which bounds memory
_CALIBRATION_CELLS = 2e6  # bags times labels that calibration looks at


class BagClassifier(MIMLClassifier):
    r"""The default: members of several kinds, mixed by how well they predict bags that they have not seen.

    For bags and for instances, dense or sparse, one label or a thousand, one view or several, without any
    setting. Every member answers for training bags that it was not shown; these answers calibrate it and
    decide its weight.

    Parameters
    ----------
    effort : {"auto", "fast", "full"}, default="auto"
        How many trees are grown, and how large a sample instance members see; "auto" is "full" up to 5,000
        bags and "fast" beyond.
    members : sequence of str, optional
        Names of the members to use, see Notes; by default all that suit the data.
    max_seconds : float, optional
        No member is started late: "ored_forest" not after 40 % of this time, "ored" not after 50 %, members
        on inherited labels not after 60 %, "stacked_kernel" not after 80 %, each view in its share of the
        time. A member that has begun is finished. What was dropped stands in ``members_``. With a limit the
        result depends on the speed of the machine.
    random_state : int, RandomState instance or None, default=None
        Seed.
    n_jobs : int, optional
        Threads; the result is the same for any number.
    verbose : bool, default=False
        Whether to draw a progress bar on a terminal.

    Attributes
    ----------
    members_ : dict of str to dict
        What each member is: choices made, sample sizes, seconds, and ``log_loss``, the mean log loss of its
        calibrated answers to unseen bags. With several views names are ``view:member``.
    weights_ : dict of str to float
        Weight of each member's logits in the mixture.
    instance_members_ : dict of str to dict
        For each view which members vote on instances, with their weights.
    log_loss_ : float
        Mean log loss of the mixture on the same bags; a little optimistic, since weights were fitted there.
    effort_ : str
        "fast" or "full".
    n_bags_used_ : int
        Bags that were learned from: all up to 50,000, a sample of 50,000 beyond. Of more than 10,000 a sample
        of 10,000 serves the members on instances and those on top of them, and the weights.
    constant_ : ndarray of shape (n_labels,)
        Score of labels that all training bags carry, or none; NaN for the others.

    Notes
    -----
    The members:

    ================== ==================================================================================
    set_kernel         Kernel ridge regression on the normalised set kernel; width and penalty by exact
                       leave-one-out error. Nystroem landmarks beyond 3,000 bags or 40,000 instances.
    statistics_kernel  The same on bag statistics (mean, spread, quantiles); up to 3,000 bags.
    inherited_forest   Random trees on instances that inherit the labels of their bag.
    ored               ORed logistic regression [1]_.
    ored_forest        Exact union EM around forests, see `ORedClassifier`.
    stacked_kernel     Kernel ridge on pooled probabilities of the members on instances.
    pooled_forest      Random trees on bag statistics beside these pooled probabilities.
    text_kernel        Kernel ridge on weighted terms of whole bags; up to 3,000 bags.
    text_logistic      Logistic regression on the same; beyond.
    inherited_logistic Logistic regression on weighted terms of instances with inherited labels.
    mimlfast           `MIMLFast`, three models of two thirds of all bags; beyond 3,000 bags.
    ================== ==================================================================================

    Text, that is instances with less than a tenth of their values different from 0, has the three of terms
    beside "ored" and "stacked_kernel", all of them sparse; "ored_forest" and "pooled_forest" join in up to
    1,000 features, the other dense ones where they are named. Members on instances answer for a bag by one of
    five models (trees: those that did not draw the bag) that has not seen it, and for a new bag by their
    mean. They learn from all bags up to 40,000 instances ("fast": 20,000; text: 2.5 times as many), from a
    sample by three models beyond.

    Scores of each member get a sigmoid per label, shrunk to a shared one; logits are mixed with non-negative
    weights shared by all labels, of least log loss with a ridge towards equal ones; then a last sigmoid.

    Which members vote on instances (one, or "ored" and "ored_forest" mixed) is decided by the same
    yardstick, the log loss of their pooled answers on unseen bags: no instance label is needed. Where the
    union assumption does not hold, inherited labels win. Without known sets an instance gets the class with
    the largest :math:`\log p(c | x) + \frac12 \log p(c | bag)`, with known sets the exact union posterior
    decides. Where bags without labels are among the training bags, instances may carry none: the odds at
    which they do are moved half way towards what instances of such bags say, since one instance explains the
    label of a bag and nothing pushes the others up. With several views answers for instances are dicts, a
    view each.

    References
    ----------
    .. [1] A. T. Pham, R. Raich, X. Z. Fern: Dynamic programming for instance annotation in
       multi-instance multi-label learning. IEEE TPAMI 39(12), 2017.
    .. [2] P. Geurts, D. Ernst, L. Wehenkel: Extremely randomized trees. Machine Learning 63, 2006.
    .. [3] T. Gärtner, P. A. Flach, A. Kowalczyk, A. J. Smola: Multi-instance kernels. ICML 2002.

    Examples
    --------
    >>> from bagwise import load_dataset
    >>> data = load_dataset("digits", n_bags=150)
    >>> model = BagClassifier("fast", random_state=0).fit(data.bags[:100], data.Y[:100])
    >>> bool((model.predict(data.bags[100:]) == data.Y[100:]).mean() > 0.9)
    True
    >>> sorted(model.weights_) == sorted(model.members_)
    True
    >>> model.annotate(data.bags[100:], data.Y[100:]).shape == (data.bags[100:].n_instances,)
    True
    """

    traits = Traits(
        instances="model", probabilities=True, views=True, empty_bags=True, label_equivariant=False
    )

    _parameters = {
        "effort": Choice("auto", "fast", "full"),
        "members": (Choice(None), Several(Choice(*MEMBERS))),
        "max_seconds": (Choice(None), Number(above=0)),
        "random_state": Seed(),
        "n_jobs": JOBS,
        "verbose": Flag(),
    }

    def __init__(
        self,
        effort: str = "auto",
        *,
        members: Any = None,
        max_seconds: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.effort = effort
        self.members = members
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"effort": "fast", "random_state": 0}

    @classmethod
    def _expected_failed_checks(cls) -> dict[str, str]:
        return {"check_bags_float32": "a split of a tree is all or nothing: rounding of features may move it"}

    # ------------------------------------------------------------------ learning

    def _fit(self, bags: Any, Y: np.ndarray, *rest: Any) -> None:
        started = time.perf_counter()
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(2**31 - 1))
        self.effort_ = self.effort
        if self.effort == "auto":
            self.effort_ = "full" if len(bags) <= FULL_BAGS else "fast"
        varies = Y.min(axis=0) < Y.max(axis=0)
        self.constant_ = np.array([np.nan if v else constant_score(y) for v, y in zip(varies, Y.T)])
        self.n_bags_used_ = min(len(bags), LARGEST)
        if len(bags) > LARGEST:
            chosen = np.sort(rng.choice(len(bags), LARGEST, replace=False))
            bags, Y = bags[chosen], Y[chosen]
        answered = np.arange(len(bags))
        if len(bags) > ANSWERED:
            answered = np.sort(rng.choice(len(bags), ANSWERED, replace=False))
        views = _views(bags)
        self._views: dict[str, ViewModel] = {}
        answers: dict[str, np.ndarray] = {}
        self.members_: dict[str, dict[str, Any]] = {}
        limit = np.inf if self.max_seconds is None else float(self.max_seconds)
        wanted = None if self.members is None else frozenset(self.members)
        with small_products(0), progress("BagClassifier", enabled=self.verbose) as advance:
            for v, (name, view) in enumerate(views.items()):
                share = (v / len(views), 1.0 / len(views))

                def clock(share: tuple[float, float] = share) -> float:
                    return ((time.perf_counter() - started) / limit - share[0]) / share[1]

                plan = plan_for(self.effort_, view.n_instances, is_text(view.X))
                empty = (Y.sum(axis=1) == 0) & (view.sizes > 0)
                folds = _folds(view[answered], Y[answered], plan, rng)
                task = Task(
                    Y,
                    answered,
                    folds,
                    bool(empty.any()),
                    plan,
                    wanted,
                    seed + 1000 * v,
                    self.n_jobs,
                    clock,
                    advance,
                )
                model, scores, facts = ViewFit(view, task).run()
                self._views[name] = model
                prefix = f"{name}:" if isinstance(bags, MultiViewBags) else ""
                answers.update({prefix + member: S for member, S in scores.items()})
                self.members_.update({prefix + member: f for member, f in facts.items()})
            self._mix(answers, Y[answered], varies)
        self.instance_members_ = {name: model.instance_weights for name, model in self._views.items()}

    def _mix(self, answers: dict[str, np.ndarray], Y: np.ndarray, varies: np.ndarray) -> None:
        """Calibrate every member, weigh them, and calibrate the whole."""
        keep = np.flatnonzero(varies)
        step = max(int(np.ceil(Y[:, keep].size / _CALIBRATION_CELLS)), 1)
        T = Y[::step, keep].astype(np.float64)
        self._sigmoids, Z = {}, []
        for name, S in answers.items():
            S = S[::step][:, keep]
            scale = float(S.std()) or 1.0
            slope, intercept = fit_sigmoids(S / scale, T) if len(keep) else np.zeros((2, 0))
            self._sigmoids[name] = np.stack([slope / scale, intercept])
            Z.append(slope / scale * S + intercept)
            if len(keep):
                self.members_[name]["log_loss"] = log_loss_sum(Z[-1], T) / T.size
        weights = mixing_weights(np.array(Z), T) if len(keep) else np.full(len(Z), 1.0 / max(len(Z), 1))
        self.weights_ = {name: float(w) for name, w in zip(answers, weights)}
        self._final = np.stack([np.ones(len(keep)), np.zeros(len(keep))])
        if len(keep) and Z:
            mixed = np.tensordot(weights, np.array(Z), 1)
            self._final = np.array(fit_sigmoids(mixed, T))
            self.log_loss_ = log_loss_sum(self._final[0] * mixed + self._final[1], T) / T.size

    # ------------------------------------------------------------------ predicting

    def _scores(self, bags: Any) -> np.ndarray:
        offsets = np.concatenate([[0], np.cumsum(bags.sizes)])
        return np.concatenate([self._block_scores(bags[a:b]) for a, b in runs(offsets, _BLOCK)])

    def _block_scores(self, bags: Any) -> np.ndarray:
        out = np.tile(np.where(np.isnan(self.constant_), 0.0, self.constant_), (len(bags), 1))
        keep = np.flatnonzero(np.isnan(self.constant_))
        if not len(keep):
            return out
        mixed = np.zeros((len(bags), len(keep)))
        with small_products(0):
            for view, (part, prefix) in self._parts(bags).items():
                used = {n for n in self._views[view].members if self.weights_.get(prefix + n, 0.0) > 0.0}
                for name, S in self._views[view].answers(part, used).items():
                    slope, intercept = self._sigmoids[prefix + name]
                    mixed += self.weights_[prefix + name] * (slope * S[:, keep] + intercept)
        out[:, keep] = self._final[0] * mixed + self._final[1]
        return out

    def _parts(self, bags: Any) -> dict[str, tuple[Bags, str]]:
        several = isinstance(bags, MultiViewBags)
        return {name: (part, f"{name}:" if several else "") for name, part in _views(bags).items()}

    def _probabilities(self, bags: Any) -> np.ndarray:
        return expit(self._scores(bags))

    # ------------------------------------------------------------------ instances

    def _per_view(self, bags: Any, answer: Any) -> Any:
        """An answer per instance; a dict view -> answer for several views."""
        found = {name: answer(self._views[name], part) for name, (part, _) in self._parts(bags).items()}
        return found if isinstance(bags, MultiViewBags) else next(iter(found.values()))

    def _class_scores(self, model: ViewModel, part: Bags, bag_scores: np.ndarray) -> np.ndarray:
        """Log-probability of every class for every instance, in the light of its bag."""
        with small_products(0):
            F = np.log(np.maximum(model.instance_probabilities(part), 1e-12))
        F[:, : len(self.constant_)] += 0.5 * log_expit(bag_scores)[part.index]
        return F

    def _instance_scores(self, bags: Any) -> Any:
        scores = self._scores(bags)

        def answer(model: ViewModel, part: Bags) -> np.ndarray:
            F = self._class_scores(model, part, scores)
            if F.shape[1] == 1:
                return scores[part.index]
            return margins(F)[:, : len(self.constant_)]

        return self._per_view(bags, answer)

    def _instance_probabilities(self, bags: Any, Y: np.ndarray | None) -> Any:
        scores = self._scores(bags) if Y is None else np.empty(0)

        def answer(model: ViewModel, part: Bags) -> np.ndarray:
            if Y is not None:
                return self._posterior(model, part, Y)[:, : len(self.constant_)]
            F = np.exp(self._class_scores(model, part, scores))
            return (F / F.sum(axis=1, keepdims=True))[:, : len(self.constant_)]

        return self._per_view(bags, answer)

    def _posterior(self, model: ViewModel, part: Bags, Y: np.ndarray) -> np.ndarray:
        with small_products(0):
            P = model.instance_probabilities(part)
        return expectation(P, part.offsets, Y, background=model.background, n_threads=threads(self.n_jobs))[0]

    def _annotate(self, bags: Any, Y: np.ndarray | None) -> Any:
        scores = self._scores(bags) if Y is None else np.empty(0)

        def answer(model: ViewModel, part: Bags) -> np.ndarray:
            if Y is None:
                F = self._class_scores(model, part, scores)
                if F.shape[1] == 1:
                    return np.where(scores[part.index, 0] > 0, 0, NO_LABEL)
                labels = F.argmax(axis=1)
                return np.where(labels < len(self.constant_), labels, NO_LABEL)
            Q = self._posterior(model, part, Y)
            labels = Q.argmax(axis=1)
            return np.where((Q.max(axis=1) > 0) & (labels < len(self.constant_)), labels, NO_LABEL)

        return self._per_view(bags, answer)

    def key_instances(self, X: Any, k: int = 1) -> Any:
        """Find the instances that speak most for each label; a dict view -> array for several views.

        Returns
        -------
        ndarray of shape (n_bags, n_labels, k)
            Row numbers of the instances, best first; -1 where a bag has fewer than ``k``.
        """
        if not isinstance(X, MultiViewBags):
            return super().key_instances(X, k)
        scores = self.instance_scores(X)
        return {name: best_rows(scores[name], X[name].offsets, k) for name in X.view_names}


def _views(bags: Any) -> dict[str, Bags]:
    return dict(bags.views) if isinstance(bags, MultiViewBags) else {"bags": bags}


def _folds(bags: Bags, Y: np.ndarray, plan: Plan, rng: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Folds of the bags that instance members learn from: all, or a sample with enough instances."""
    chosen = np.arange(len(bags))
    # what few words cost, many instances of text may have
    limit = plan.max_instances * (_TEXT_FACTOR if is_text(bags.X) else 1)
    if bags.n_instances > limit:
        order = rng.permutation(len(bags))
        chosen = np.sort(order[np.cumsum(bags.sizes[order]) <= limit])
    # beside a sample most bags are unseen by every model: fewer of them will do
    n_folds = min(plan.n_folds if len(chosen) == len(bags) else 3, len(chosen))
    if n_folds < 2:
        return []
    split = MultilabelKFold(n_folds, random_state=rng).split(Y[chosen], Y[chosen])
    return [(chosen[train], chosen[test]) for train, test in split]
