"""ORed classifier: the exact union posterior around any probabilistic classifier of instances."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.special import expit, log_expit
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import has_fit_parameter

from bagwise.bags import Bags
from bagwise.base import NO_LABEL, MIMLClassifier, Traits
from bagwise.base.parameters import JOBS, Choice, Flag, HasMethod, Seed, Whole
from bagwise.compute.calibration import fit_sigmoids
from bagwise.compute.threads import run, threads
from bagwise.errors import DataError
from bagwise.models._shared.held_out import MultilabelKFold
from bagwise.models._shared.scores import constant_score, margins, pooled, safe_logit
from bagwise.models.ored.estimator import ORedLogisticRegression
from bagwise.models.ored.predict import FLOOR, expectation


class ORedClassifier(MIMLClassifier):
    r"""Any classifier of instances, taught by label sets: a bag's set is the union of its instances' labels.

    Rounds of expectation and maximisation. The expectation is the exact posterior of every instance's label
    given the label set of its bag; the maximisation fits the classifier to instances with these labels.

    Parameters
    ----------
    estimator : classifier, optional
        Any classifier of rows with ``predict_proba``: a forest, boosting, naive Bayes, logistic regression, a
        pipeline. By default ``ExtraTreesClassifier(100, bootstrap=True)``.
    n_rounds : int, default=2
        Rounds. Forests gain from one or two; more rounds confirm what was believed before.
    start : {"logistic", "uniform"}, default="logistic"
        First posteriors: those of `ORedLogisticRegression`, or every label of the bag alike.
    targets : {"auto", "hard", "soft"}, default="auto"
        Whether an instance is shown with its most probable label, weighted by its probability, or with each
        label of its bag, weighted likewise. "auto" is "hard" for forests that bootstrap, since copies of an
        instance would defeat it, and "soft" for others that take weights.
    held_out : {"auto", "bootstrap", "folds", "none"}, default="auto"
        Which probabilities of training instances the expectation sees: of the trees that did not use the
        instance, of copies fitted without the fold of its bag, or of the fitted classifier itself. "auto" is
        "bootstrap" where the classifier can, otherwise "folds". "none" is right for rigid models alone: a
        forest only confirms the labels that it was given.
    n_folds : int, default=5
        Folds of bags, for "folds" and for the calibration.
    background : bool or "auto", default="auto"
        Whether instances may carry no label; "auto" if some training bag has an empty set.
    max_labels : int, default=16
        Largest label set that is treated exactly; larger ones only restrict the labels of their instances.
    random_state : int, RandomState instance or None, default=None
        Seed of folds and of an estimator that has none.
    n_jobs : int, optional
        Folds fitted at a time, and threads of the posteriors.

    Attributes
    ----------
    estimator_ : classifier
        Fitted to all instances in the last round; a number if only one class was left.
    posteriors_ : ndarray of shape (n_instances, n_labels)
        Transductive answer for the training bags: the last posteriors, from probabilities of models that did
        not see the bag's labels.
    log_likelihood_ : ndarray of shape (n_rounds,)
        Mean log-likelihood of the label sets under held-out probabilities, per bag that can be, each round.
        If it falls, the union assumption does not hold for these data: prefer fewer rounds.
    has_background_ : bool
        Whether there is a class of instances without a label, the last one of ``estimator_``.
    sigmoids_ : ndarray of shape (2, n_labels)
        Slope and intercept that make bag scores probabilities.

    Notes
    -----
    With probabilities :math:`p_\theta(c | x)` of the classifier the likelihood of a label set is that of
    ORed logistic regression [1]_,

    .. math:: p(Y_b | X_b) = \sum_{y : \cup_i y_i = Y_b} \prod_i p_\theta(y_i | x_i) .

    With ``targets="soft"``, ``held_out="none"`` and a classifier that maximises weighted likelihood a round
    is one step of EM and this likelihood never falls. With held-out probabilities it is EM on what the
    classifier says of bags that it has not seen, without that guarantee; ``log_likelihood_`` shows it.
    Probabilities are kept above 0.001, since forests say 0 where they mean rarely.

    A bag scores ``logit(max / 2 + mean / 2)`` of its instances' probabilities; a sigmoid per label, fitted on
    bags held out by folds, makes that a probability. Without known sets an instance gets the class with the
    largest :math:`\log p(c | x) + \frac12 \log p(c | bag)`, with known sets the exact posterior decides.

    **When it fails.** Every instance is taken to carry exactly one label of its bag (or none, with a
    background). Where instances carry several labels, or none without a background class, rounds make things
    worse: sentences of long documents are an example. Sets with more labels than instances cannot be; they
    only restrict labels.

    References
    ----------
    .. [1] A. T. Pham, R. Raich, X. Z. Fern: Dynamic programming for instance annotation in
       multi-instance multi-label learning. IEEE TPAMI 39(12), 2017. The posterior; the classifier is a
       softmax there.

    Examples
    --------
    >>> from bagwise import load_dataset
    >>> from sklearn.naive_bayes import GaussianNB
    >>> data = load_dataset("digits", n_bags=150)
    >>> model = ORedClassifier(GaussianNB(var_smoothing=0.01)).fit(data.bags, data.Y)
    >>> bool((model.annotate(data.bags, data.Y) == data.instance_Y).mean() > 0.9)
    True
    >>> model.posteriors_.shape == (data.bags.n_instances, 10)
    True
    """

    traits = Traits(
        instances="model",
        probabilities=True,
        empty_bags=True,
        label_equivariant=False,
        known_instances=True,
    )

    _parameters = {
        "estimator": (Choice(None), HasMethod("fit", "predict_proba", "get_params")),
        "n_rounds": Whole(1),
        "start": Choice("logistic", "uniform"),
        "targets": Choice("auto", "hard", "soft"),
        "held_out": Choice("auto", "bootstrap", "folds", "none"),
        "n_folds": Whole(2),
        "background": (Flag(), Choice("auto")),
        "max_labels": Whole(1, 24),
        "random_state": Seed(),
        "n_jobs": JOBS,
    }

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_rounds: int = 2,
        start: str = "logistic",
        targets: str = "auto",
        held_out: str = "auto",
        n_folds: int = 5,
        background: Any = "auto",
        max_labels: int = 16,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_rounds = n_rounds
        self.start = start
        self.targets = targets
        self.held_out = held_out
        self.n_folds = n_folds
        self.background = background
        self.max_labels = max_labels
        self.random_state = random_state
        self.n_jobs = n_jobs

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"estimator": ExtraTreesClassifier(10, bootstrap=True, random_state=0), "n_folds": 3}

    @classmethod
    def _expected_failed_checks(cls) -> dict[str, str]:
        reason = "a split of a tree is all or nothing: the last bits of the first round may move it"
        return {"check_bags_sparse": reason, "check_bags_float32": reason}

    # ------------------------------------------------------------------ learning

    def _fit(self, bags: Any, Y: np.ndarray, *rest: Any) -> None:
        known = rest[0] if rest else None
        if bags.n_instances == 0:
            raise DataError("all bags are empty; ORedClassifier learns from instances")
        rng = check_random_state(self.random_state)
        empty_set = Y.sum(axis=1) == 0
        self.has_background_ = bool(
            empty_set[bags.sizes > 0].any() if self.background == "auto" else self.background
        )
        self._n_classes = Y.shape[1] + self.has_background_
        inner, held_out, soft = self._plan(rng)
        folds = self._folds(Y, rng)
        history = []
        Q = self._expectation(bags, Y, self._first(bags, Y, known), known)[0]
        for last in [False] * (self.n_rounds - 1) + [True]:
            model = maximisation(inner, bags.X, Q, soft=soft)
            # what bags are calibrated on must not know their labels, not even by their other instances
            unseen = self._unseen(inner, model, bags, Q, soft, "folds" if last else held_out, folds)
            seen = class_probabilities(model, bags.X, self._n_classes) if held_out == "none" else unseen
            Q, loglik = self._expectation(bags, Y, seen, known)
            history.append(float(loglik[np.isfinite(loglik)].mean()) if np.isfinite(loglik).any() else np.nan)
        self.estimator_ = model
        self.posteriors_ = Q[:, : Y.shape[1]]
        self.log_likelihood_ = np.array(history)
        self._learn_decision(unseen[:, : Y.shape[1]], bags, Y)

    def _plan(self, rng: np.random.RandomState) -> tuple[Any, str, bool]:
        """The seeded classifier, where held-out probabilities come from, and whether targets are soft."""
        default = ExtraTreesClassifier(100, bootstrap=True)
        inner = clone(default if self.estimator is None else self.estimator)
        forest = bootstraps(inner)
        if self.held_out == "bootstrap" and not forest:
            raise ValueError(
                f"held_out='bootstrap' needs a forest with bootstrap=True, got {type(inner).__name__}; "
                "use held_out='folds'"
            )
        held_out = self.held_out
        if held_out == "auto":
            held_out = "bootstrap" if forest else "folds"
        if held_out == "bootstrap":
            if self.targets == "soft":
                raise ValueError(
                    "targets='soft' shows copies of an instance, of which a bootstrap leaves out one; "
                    "use held_out='folds'"
                )
            inner.set_params(oob_score=True)
        if inner.get_params().get("random_state", 0) is None:
            inner.set_params(random_state=rng.randint(np.iinfo(np.int32).max))
        soft = self.targets == "soft" or (self.targets == "auto" and not forest)
        return inner, held_out, soft

    def _folds(self, Y: np.ndarray, rng: np.random.RandomState) -> list[tuple[np.ndarray, np.ndarray]]:
        n_folds = min(self.n_folds, len(Y))
        if n_folds < 2:
            return [(np.arange(len(Y)), np.arange(len(Y)))]
        return list(MultilabelKFold(n_folds, random_state=rng).split(Y, Y))

    def _first(self, bags: Bags, Y: np.ndarray, known: np.ndarray | None) -> np.ndarray:
        """Class probabilities of the instances to start from."""
        some = np.flatnonzero(bags.sizes > 0)
        uniform = np.full((bags.n_instances, self._n_classes), 1.0 / self._n_classes)
        if self.start == "uniform" or not (Y[some].any() and self._n_classes > 1):
            return uniform
        softmax = ORedLogisticRegression(
            alpha=1.0,
            decision="union",  # posteriors alone are asked for
            background=self.has_background_,
            unusable_bags="candidates",
            max_labels=self.max_labels,
            max_iter=60,
            tol=1e-3,
            n_jobs=self.n_jobs,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # sets that cannot be are dealt with; a rough start will do
            # bags without instances have no row: all rows are those of the bags left
            softmax.fit(bags[some], Y[some], instance_y=known)  # type: ignore[call-arg]
        P = softmax.annotate(bags[some], return_proba=True)[1]
        if self.has_background_:
            P = np.column_stack([P, 1.0 - P.sum(axis=1)])
        return P

    def _expectation(self, bags: Bags, Y: np.ndarray, P: np.ndarray, known: Any = None) -> Any:
        return expectation(
            P,
            bags.offsets,
            Y,
            background=self.has_background_,
            known=known,
            max_labels=self.max_labels,
            n_threads=threads(self.n_jobs),
        )

    def _unseen(self, inner, model, bags, Q, soft, held_out, folds):
        """Class probabilities of the training instances by models that were not shown them."""
        if held_out == "none":
            return class_probabilities(model, bags.X, self._n_classes)
        if held_out == "bootstrap":
            rows = np.flatnonzero(Q.max(axis=1) > 0)
            return left_out_probabilities(model, bags.X, rows, self._n_classes)
        P = np.empty((bags.n_instances, self._n_classes))
        parts = []
        for train, test in folds:
            chosen = np.zeros(len(bags), dtype=bool)
            chosen[train] = True
            inside = chosen[bags.index]
            asked = ~inside if len(train) + len(test) == len(bags) else inside
            parts.append((inner, bags.X, Q, inside, asked, soft))
        for part, answer in zip(parts, run(_fold_probabilities, parts, self.n_jobs)):
            P[part[4]] = answer
        return P

    def _learn_decision(self, P: np.ndarray, bags: Bags, Y: np.ndarray) -> None:
        varies = Y.min(axis=0) < Y.max(axis=0)
        self.constant_ = np.array([np.nan if v else constant_score(y) for v, y in zip(varies, Y.T)])
        self.sigmoids_ = np.ones((2, Y.shape[1])) * [[1.0], [0.0]]
        if varies.any():
            self.sigmoids_[:, varies] = fit_sigmoids(self._blend(P, bags)[:, varies], Y[:, varies])

    @staticmethod
    def _blend(P: np.ndarray, bags: Bags) -> np.ndarray:
        largest, mean, _ = pooled(P, bags.offsets)
        return safe_logit((largest + mean) / 2.0)

    # ------------------------------------------------------------------ predicting

    def _scores(self, bags: Any) -> np.ndarray:
        return self._bag_scores(class_probabilities(self.estimator_, bags.X, self._n_classes), bags)

    def _bag_scores(self, P: np.ndarray, bags: Bags) -> np.ndarray:
        scores = self.sigmoids_[0] * self._blend(P[:, : len(self.constant_)], bags) + self.sigmoids_[1]
        return np.where(np.isnan(self.constant_), scores, self.constant_)

    def _probabilities(self, bags: Any) -> np.ndarray:
        return expit(self._scores(bags))

    def _class_scores(self, bags: Bags) -> np.ndarray:
        """Log-probability of every class for every instance, in the light of its bag."""
        P = class_probabilities(self.estimator_, bags.X, self._n_classes)
        scores = np.log(np.maximum(P, FLOOR))
        bag = log_expit(self._bag_scores(P, bags))
        scores[:, : len(self.constant_)] += 0.5 * bag[bags.index]
        return scores

    def _instance_scores(self, bags: Any) -> np.ndarray:
        scores = self._class_scores(bags)
        return margins(scores)[:, : len(self.constant_)] if scores.shape[1] > 1 else np.ones_like(scores)

    def _annotate(self, bags: Any, Y: np.ndarray | None) -> np.ndarray:
        F = self._class_scores(bags) if Y is None else self._posterior(bags, Y)
        labels = F.argmax(axis=1)
        some = labels < len(self.constant_)
        if Y is not None:
            some &= F.max(axis=1) > 0
        return np.where(some, labels, NO_LABEL)

    def _posterior(self, bags: Any, Y: np.ndarray) -> np.ndarray:
        return self._expectation(bags, Y, class_probabilities(self.estimator_, bags.X, self._n_classes))[0]

    def _instance_probabilities(self, bags: Any, Y: np.ndarray | None) -> np.ndarray:
        if Y is not None:
            return self._posterior(bags, Y)[:, : len(self.constant_)]
        scores = np.exp(self._class_scores(bags))
        return (scores / scores.sum(axis=1, keepdims=True))[:, : len(self.constant_)]


def _fold_probabilities(inner, X, Q, inside, asked, soft):
    """Fit to the instances of some bags and answer for those of the others."""
    rows = np.flatnonzero(inside)
    if bootstraps(inner):
        inner = clone(inner).set_params(oob_score=False)
    if not Q[rows].any():
        return np.full((int(asked.sum()), Q.shape[1]), 1.0 / Q.shape[1])
    model = maximisation(inner, X[rows], Q[rows], soft=soft)
    return class_probabilities(model, X[np.flatnonzero(asked)], Q.shape[1])


# ---------------------------------------------------------------------- one classifier of instances


def maximisation(estimator: Any, X: Any, Q: np.ndarray, *, soft: bool) -> Any:
    """Fit a copy of the classifier to instances whose classes are known in part.

    Parameters
    ----------
    estimator : classifier
        Unfitted; weights are used where it takes them.
    X : array or CSR of shape (n_instances, n_features)
        Instances.
    Q : ndarray of shape (n_instances, n_classes)
        Probabilities of their classes; a row of zeros is left out.
    soft : bool
        Whether an instance counts for each class by its probability, or for the most probable one alone.

    Returns
    -------
    classifier, or the number of the only class that occurs
    """
    if soft:
        rows, classes = np.nonzero(Q > 1e-2)
        weights = Q[rows, classes]
    else:
        rows = np.flatnonzero(Q.max(axis=1) > 0)
        classes, weights = Q[rows].argmax(axis=1), Q[rows].max(axis=1)
    if len(np.unique(classes)) == 1:
        return int(classes[0])
    name = weight_name(estimator)
    return clone(estimator).fit(X[rows], classes, **({} if name is None else {name: weights}))


def weight_name(estimator: Any) -> str | None:
    """The argument of ``fit`` that takes weights of rows, None if there is none.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> weight_name(make_pipeline(LogisticRegression()))
    'logisticregression__sample_weight'
    """
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        inner = weight_name(last)
        return None if inner is None else f"{name}__{inner}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None


def class_probabilities(model: Any, X: Any, n_classes: int) -> np.ndarray:
    """Probability of every class for every instance; 0 for classes that training did not show."""
    P = np.zeros((X.shape[0], n_classes))
    if isinstance(model, int):
        P[:, model] = 1.0
    elif X.shape[0]:
        P[:, model.classes_] = model.predict_proba(X)
    return P


def bootstraps(estimator: Any) -> bool:
    """Whether a forest leaves out instances of its own accord, and can tell what it says of them."""
    parameters = estimator.get_params()
    return bool(parameters.get("bootstrap")) and "oob_score" in parameters


def left_out_probabilities(model: Any, X: Any, rows: np.ndarray, n_classes: int) -> np.ndarray:
    """What a forest says of its training rows by the trees that did not use them."""
    P = class_probabilities(model, X, n_classes)
    if isinstance(model, int):
        return P
    votes = np.asarray(model.oob_decision_function_)
    some = np.isfinite(votes).all(axis=1) & (votes.sum(axis=1) > 0)
    P[rows] = 1.0 / n_classes  # used by every tree: nothing is known
    P[np.ix_(rows[some], model.classes_)] = votes[some]
    unseen = np.setdiff1d(np.arange(n_classes), model.classes_)
    P[np.ix_(rows[some], unseen)] = 0.0
    return P
