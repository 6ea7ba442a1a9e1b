"""MIMLfast: a linear space shared by all labels, sub-concepts, and a ranking loss learned in seconds."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import runs
from bagwise.base import MIMLClassifier, Traits, best_rows
from bagwise.base.parameters import JOBS, Choice, Flag, Number, Rules, Seed, Whole, check_parameters
from bagwise.errors import DataError
from bagwise.kernels.segment import segment_argmax, segment_max
from bagwise.models._shared.margins import margins
from bagwise.models.mimlfast.forward import (
    N_SLICES,
    SLICE_BAGS,
    Forward,
    Scaling,
    fit_scaling,
    matching_form,
)
from bagwise.models.mimlfast.plan import MOST_HELD_OUT, RULES, SMALL, SOLVERS, make_plan, n_held_out
from bagwise.models.mimlfast.train import (
    BatchTrainer,
    LabelRows,
    SGDTrainer,
    best_offset,
    initial_parameters,
    n_slices,
    train,
)
from bagwise.parallel import Workers

_CELLS = 1 << 22  # scores computed at a time in prediction
_IN_USE = 0.05  # share of a label's bags that makes a sub-concept count as used


class MIMLFast(MIMLClassifier):
    """Rank labels by linear sub-concept models over a shared linear space, with a dummy label as threshold.

    Parameters
    ----------
    n_components : int, default=100
        Dimension m of the shared space.
    n_sub_concepts : int, default=5
        Sub-concepts K per label; a label need not use them all.
    max_norm : float, default=10.0
        Cap C on the norm of each label vector and of each column of the shared space.
    solver : {"auto", "minibatch", "asgd", "sgd"}, default="auto"
        "sgd" is the algorithm of [1]_ to the letter, "asgd" answers with the average of its iterates,
        "minibatch" uses exact ranks, matrix products and Adam. "auto" takes "asgd" up to 3,000 bags (20,000
        of text-like data, see ``scaling``) and "minibatch" above.
    step_size : float, default=0.005
        Initial step gamma_0 of "sgd" and "asgd".
    step_decay : float, default=1e-5
        Decay eta: the step at iteration t is ``gamma_0 / (1 + eta gamma_0 t)``.
    learning_rate : float, default=0.015
        Initial step of "minibatch", which falls linearly to zero.
    batch_size : int or "auto", default="auto"
        Bags per batch of "minibatch".
    max_iter : int or "auto", default="auto"
        Limit on passes over the bags.
    n_iter_no_change : int or "auto", default="auto"
        Passes without a lower held-out ranking loss after which training stops; "auto" is 1 for "sgd", as in
        [1]_, and 5 otherwise.
    validation : "auto", int or float, default="auto"
        Bags held out of training to decide when to stop and to calibrate the offset: a share (below 1), or a
        number of folds (2 or more), or 0 for none. "auto" takes 3 folds up to 500 bags, a fifth up to 3,000
        bags, and a tenth (at most 2,000 bags) above.
    refit : "auto" or bool, default="auto"
        Whether to train again on all bags once the number of passes is known. Folds always need it; "auto"
        does so up to 3,000 bags, and never for "sgd".
    threshold_rule : {"calibrated", "text", "line17", "code"}, default="calibrated"
        When a label is predicted: f_l > f_dummy + ``offset_`` with the offset of least Hamming loss on
        held-out bags; or one of the three rules that paper and authors' code give (see Notes).
    scaling : {"auto", "none"}, default="auto"
        "auto" learns on standardised instances of a fixed mean length with a constant feature (text-like
        data, less than a tenth non-zero: on one common factor); "none" is the paper's raw algorithm.
    feature_norm : float or "auto", default="auto"
        Root mean square length of scaled instances; "auto" is 15 for "minibatch" and 3 otherwise.
    n_jobs : int, optional
        Threads of "minibatch", -1 for all cores; None takes as many as the matrix library would use. Results
        do not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed.

    Attributes
    ----------
    shared_space_ : ndarray of shape (n_components, n_features)
        The map into the shared space, for features as given.
    shared_intercept_ : ndarray of shape (n_components,)
        Its constant part.
    label_weights_ : ndarray of shape (n_labels + 1, n_sub_concepts, n_components)
        Sub-concepts of every label; the dummy label comes last.
    offset_ : float
        What a label's score must exceed the dummy's by.
    sub_concept_counts_ : ndarray of shape (n_labels, n_sub_concepts)
        How often each sub-concept was the best of its label on training bags with that label, in the last
        pass.
    sub_concepts_in_use_ : ndarray of shape (n_labels,)
        Number of sub-concepts that were best for at least a twentieth of the label's bags.
    solver_ : str
        The solver that was used.
    n_iter_ : int
        Passes over the data after which the model was taken.
    objective_ : list of float
        Ranking loss on held-out bags after each pass, mean over folds; empty if none were held out.

    Notes
    -----
    Symbols of [1]_: W_0 is ``shared_space_``, w_{l,k} is ``label_weights_[l, k]``, m, K, C, gamma_0 and eta
    are ``n_components``, ``n_sub_concepts``, ``max_norm``, ``step_size`` and ``step_decay``. With
    ``f_l(X) = max over instances x and k of label_weights_[l, k] . (shared_space_ x + shared_intercept_)``,
    ``decision_function`` is ``f_l(X) - f_dummy(X) - offset_``. ``instance_scores`` puts one instance in
    place of the maximum and keeps the bag's dummy, so its largest value in a bag is the bag's score.

    *Differences from* [1]_. (1) The paper gives two rules for prediction and the authors' code a third:
    "text" is f_l > f_dummy, "line17" (of Algorithm 1) is f_l > f_dummy - 1, "code" is f_l > f_dummy + 1, or
    l is the best label. They can be worse than predicting nothing when labels are many, hence the
    calibrated offset. With "code" ``predict`` adds the best label to those of positive score. (2) A
    bilinear model with fixed margin and caps depends on the scale of features and diverges or stalls on raw
    ones: instances are standardised inside, and parameters are given for features as they came. (3) The
    model of [1]_ has no constant term; the scaled instance has a constant feature, unless
    ``scaling="none"``. (4) The validation set also serves for the offset, and the best state is kept
    instead of the last. (5) "minibatch" minimises Eq. (5) with exact ranks R(X, y) in place of sampled
    ones.

    Irrelevant labels are drawn with replacement, at most as often as there are any. The dummy has K
    sub-concepts, too. Norms above the cap are scaled down, others left alone.

    References
    ----------
    .. [1] S.-J. Huang, W. Gao, Z.-H. Zhou: Fast multi-instance multi-label learning. AAAI 2014.

    Examples
    --------
    >>> from bagwise.datasets.synthetic import make_miml
    >>> data = make_miml(n_bags=120, random_state=0)
    >>> model = MIMLFast(n_components=20, n_sub_concepts=1, random_state=0).fit(data.bags, data.Y)
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.9)
    True
    >>> sub_concept, instance = model.sub_concepts(data.bags)
    >>> bool((instance == model.key_instances(data.bags)[:, :, 0]).all())
    True
    """

    traits = Traits(instances="model", label_equivariant=False)
    _parameters: ClassVar[Rules] = {
        "n_components": Whole(1),
        "n_sub_concepts": Whole(1),
        "max_norm": Number(above=0),
        "solver": Choice(*SOLVERS),
        "step_size": Number(above=0),
        "step_decay": Number(0),
        "learning_rate": Number(above=0),
        "batch_size": (Choice("auto"), Whole(1)),
        "max_iter": (Choice("auto"), Whole(1)),
        "n_iter_no_change": (Choice("auto"), Whole(1)),
        "validation": (Choice("auto"), Number(0, below=1), Whole(2)),
        "refit": (Choice("auto"), Flag()),
        "threshold_rule": Choice(*RULES),
        "scaling": Choice("auto", "none"),
        "feature_norm": (Choice("auto"), Number(above=0)),
        "n_jobs": JOBS,
        "random_state": Seed(),
    }

    def __init__(
        self,
        n_components=100,
        n_sub_concepts=5,
        *,
        max_norm=10.0,
        solver="auto",
        step_size=0.005,
        step_decay=1e-5,
        learning_rate=0.015,
        batch_size="auto",
        max_iter="auto",
        n_iter_no_change="auto",
        validation="auto",
        refit="auto",
        threshold_rule="calibrated",
        scaling="auto",
        feature_norm="auto",
        n_jobs=None,
        random_state=None,
    ):
        self.n_components = n_components
        self.n_sub_concepts = n_sub_concepts
        self.max_norm = max_norm
        self.solver = solver
        self.step_size = step_size
        self.step_decay = step_decay
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.n_iter_no_change = n_iter_no_change
        self.validation = validation
        self.refit = refit
        self.threshold_rule = threshold_rule
        self.scaling = scaling
        self.feature_norm = feature_norm
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def _test_params(cls):
        return {"n_components": 10, "n_sub_concepts": 2, "max_iter": 20, "random_state": 0}

    # ------------------------------------------------------------------ learning

    def _fit(self, bags, Y):
        plan = make_plan(self, len(bags), bags.X)
        workers = Workers(self.n_jobs, N_SLICES)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        with workers:
            scaling = fit_scaling(bags.X, self.scaling, plan.norm, workers)
            forward = self._forward(bags, Y.shape[1], scaling, plan, workers)
            A, W, used = self._learn(forward, LabelRows.from_matrix(Y), Y, plan, rng)
        self.solver_ = plan.solver
        self._scaling: list[Any] = list(scaling)
        self._state = {"A": A, "W": W, "t": 0}
        self._publish(A, W, used)

    def _forward(self, bags, n_labels, scaling, plan, workers):
        X = matching_form(bags.X, scaling)
        batch = min(plan.batch_bags, len(bags))
        slice_bags = max(SLICE_BAGS, -(-batch // n_slices(batch)))
        n_all, K, m = n_labels + 1, self.n_sub_concepts, self.n_components
        return Forward(X, bags.offsets, scaling, n_all, K, m, workers, slice_bags)

    def _learn(self, forward, rows, Y, plan, rng):
        """Parameters and use of sub-concepts, trained as planned; held-out scores are kept for the offset."""
        everything = np.arange(len(Y))
        order = rng.permutation(len(Y))
        seeds = rng.integers(0, 2**63, 2)

        def trainer(ids):
            start = np.random.default_rng(seeds[0])  # all folds begin at the same point
            state = initial_parameters(start, forward.n_inputs - 1, *_shape(forward))
            return self._trainer(
                plan, forward, rows, ids, state, np.random.default_rng(seeds[1]), plan.max_iter
            )

        if plan.folds == 0:
            only = trainer(everything)
            for _ in range(plan.max_iter):
                only.epoch()
            self.n_iter_, self.objective_ = plan.max_iter, []
            some = np.sort(order[:MOST_HELD_OUT])
            scores = only.scores(some)
            self._window = [scores[:, :-1] - scores[:, -1:], Y[some]]
            return *only.parameters(), only.used
        if plan.folds == 1:
            held_out = [np.sort(order[: n_held_out(plan.share, len(Y))])]
        else:
            held_out = [np.sort(part) for part in np.array_split(order, plan.folds)]
        trainers = [trainer(np.setdiff1d(everything, bags)) for bags in held_out]
        outcome = train(trainers, held_out, Y, plan.max_iter, plan.patience)
        self.n_iter_, self.objective_ = outcome.n_epochs, outcome.history
        self._window = [outcome.margins, Y[outcome.held_out]]
        if not plan.refit:
            return *outcome.parameters[0], outcome.used
        final = trainer(everything)
        for _ in range(outcome.n_epochs):
            final.epoch()
        return *final.parameters(), final.used

    def _trainer(self, plan, forward, rows, ids, state, rng, n_epochs):
        if plan.solver == "minibatch":
            return BatchTrainer(
                forward, rows, ids, state, rng, C=self.max_norm, rate=self.learning_rate,
                batch_bags=plan.batch_bags, n_epochs=n_epochs,
            )  # fmt: skip
        return SGDTrainer(
            forward, rows, ids, state, rng, C=self.max_norm, gamma0=self.step_size, eta=self.step_decay,
            average=plan.solver == "asgd",
        )  # fmt: skip

    def _publish(self, A, W, used):
        """Parameters for features as given; the scaled instance is ((x - mean) * factor, constant)."""
        mean, factor, constant, _ = Scaling(*self._scaling)
        mean, factor, A = mean.astype(np.float64), factor.astype(np.float64), A.astype(np.float64)
        space = A[:-1] * factor[:, None]
        self.shared_space_ = np.ascontiguousarray(space.T)
        self.shared_intercept_ = constant * A[-1] - mean @ space
        self.label_weights_ = W.astype(np.float64)
        self.sub_concept_counts_ = used[:-1]
        total = np.maximum(self.sub_concept_counts_.sum(axis=1, keepdims=True), 1)
        self.sub_concepts_in_use_ = (self.sub_concept_counts_ >= _IN_USE * total).sum(axis=1)
        self.sub_concepts_in_use_[self.sub_concept_counts_.sum(axis=1) == 0] = 0
        rule = RULES[self.threshold_rule]
        self.offset_ = best_offset(*self._window) if rule is None else rule

    def partial_fit(self, X, y, classes=None):
        """Learn from one more piece of data, in one pass.

        The first piece fixes the labels and the scale of features. Later pieces are first predicted, which
        gives honest scores for the offset, and then learned.

        Parameters
        ----------
        X : Bags, list of 2-D arrays, or table
            The bags of this piece.
        y : labels as in ``fit``
            Their labels.
        classes : array, optional
            All classes, when ``y`` is 1-D and the first piece may not show them all.

        Returns
        -------
        self
        """
        check_parameters(self, self._parameters)
        first = not hasattr(self, "label_weights_")
        bags, Y = self._check_piece(X, y, classes, first)
        plan = make_plan(self, SMALL + 1)  # pieces may be small, but there will be many
        if self.batch_size == "auto":
            plan = plan._replace(batch_bags=int(np.clip(len(bags) // 8, 16, 512)))
        workers = Workers(self.n_jobs, N_SLICES)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        rng = np.random.default_rng([seed, 0 if first else self._state["t"]])
        ids = rng.permutation(len(bags))
        with workers:
            if first:
                self.solver_, self._window = plan.solver, [np.zeros((0, Y.shape[1]), np.float32), Y[:0]]
                self._scaling = list(fit_scaling(bags.X, self.scaling, plan.norm, workers))
            plan = plan._replace(solver=self.solver_)
            forward = self._forward(bags, Y.shape[1], Scaling(*self._scaling), plan, workers)
            if first:
                self._state = initial_parameters(rng, bags.n_features, *_shape(forward))
            rows = LabelRows.from_matrix(Y)
            n_ahead = 0 if first else len(ids)  # bags scored before they are learned
            parts = np.split(ids, [len(ids) - len(ids) // 5]) if first and len(ids) >= 5 else [ids]
            used = np.zeros((Y.shape[1] + 1, self.n_sub_concepts), np.int64)
            for k, part in enumerate(parts):
                trainer = self._trainer(plan, forward, rows, part, self._state, rng, None)
                if n_ahead or k == len(parts) - 1 > 0:
                    self._remember(trainer.scores(part), Y[part])
                trainer.epoch()
                used += trainer.used
                if first and len(parts) == 1:
                    self._remember(trainer.scores(part), Y[part])
                A, W = trainer.parameters()
        self._publish(A, W, used)
        self.n_iter_, self.objective_ = 1, []
        return self

    def _check_piece(self, X, y, classes, first):
        if not first:
            bags = self._as_bags(X, reset=False)
            Y = self._known_labels(y, bags)
        elif classes is not None and np.ndim(y) == 1:
            bags = self._as_bags(X, reset=True)
            self._target_dtype = "int64"
            self._encode_classes(np.asarray(classes))
            Y = self._known_labels(y, bags)
        else:
            return self._check_training(X, y)
        if len(Y) != len(bags):
            raise DataError(f"inconsistent numbers of samples: {len(bags)} bags, {len(Y)} rows of labels")
        return bags, np.ascontiguousarray(Y)

    def _remember(self, scores, Y):
        """Keep the latest honest margins; the offset is the best one for them."""
        latest = scores[:, :-1] - scores[:, -1:], Y
        most = max(1, min(MOST_HELD_OUT, _CELLS // Y.shape[1]))
        self._window = [np.concatenate(pair)[-most:] for pair in zip(self._window, latest)]

    # ------------------------------------------------------------------ prediction

    def _blocks(self, bags):
        """Runs of bags with the scores (instances, L + 1, K) of their instances, of bounded size."""
        W = self.label_weights_.reshape(-1, self.label_weights_.shape[2])
        limit = max(_CELLS // len(W), 1)
        for first, last in runs(bags.offsets, limit):
            part = bags[first:last]
            P = np.asarray(part.X @ self.shared_space_.T) + self.shared_intercept_
            yield part, (P @ W.T).reshape(len(P), *self.label_weights_.shape[:2])

    def _scores(self, bags):
        top = [
            segment_max(np.ascontiguousarray(F.max(axis=2)), part.offsets) for part, F in self._blocks(bags)
        ]
        scores = np.concatenate(top)
        return scores[:, :-1] - scores[:, -1:] - self.offset_

    def _instance_scores(self, bags):
        result = []
        for part, F in self._blocks(bags):
            F = np.ascontiguousarray(F.max(axis=2))
            dummy = segment_max(F[:, -1], part.offsets)
            result.append(F[:, :-1] - dummy[part.index][:, None] - self.offset_)
        return np.concatenate(result)

    def key_instances(self, X, k=1, *, rule="score"):
        """Find the instances that speak most for each label.

        Parameters
        ----------
        X : Bags, list of 2-D arrays, or table
            The bags.
        k : int, default=1
            Instances per bag and label.
        rule : {"score", "contrast"}, default="score"
            What an instance x is judged by: "score" is f_l(x), as in the paper; "contrast" is f_l(x) less the
            largest score of any other label, a better guide where an instance carries one label only.

        Returns
        -------
        ndarray of shape (n_bags, n_labels, k)
            Row numbers of ``bags.X``, best first; -1 where a bag has fewer than ``k`` instances. Among equal
            scores the earlier row wins.
        """
        if rule == "score":
            return super().key_instances(X, k)
        if rule != "contrast":
            raise ValueError(f"rule must be score or contrast, got {rule!r}")
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        check_is_fitted(self)
        bags = self._as_bags(X, reset=False)
        return best_rows(margins(self._instance_scores(bags)), bags.offsets, k)

    def _predict(self, bags, scores):
        chosen = scores > 0
        if self.threshold_rule == "code" and self._target == "multilabel":
            chosen[np.arange(len(chosen)), scores.argmax(axis=1)] = True
        return chosen

    def sub_concepts(self, X):
        """Find which sub-concept of each label speaks loudest in each bag, and in which instance.

        Parameters
        ----------
        X : Bags, list of 2-D arrays, or table
            The bags.

        Returns
        -------
        sub_concept : ndarray of shape (n_bags, n_labels)
            Number of the sub-concept, 0 to ``n_sub_concepts - 1``.
        instance : ndarray of shape (n_bags, n_labels)
            Row number of ``bags.X``: the key instance.
        """
        check_is_fitted(self)
        bags = self._as_bags(X, reset=False)
        which, where, start = [], [], 0
        for part, F in self._blocks(bags):
            rows = segment_argmax(np.ascontiguousarray(F.max(axis=2)[:, :-1]), part.offsets)
            labels = np.arange(F.shape[1] - 1)
            which.append(F[rows, labels].argmax(axis=2))
            where.append(rows + start)
            start += part.n_instances
        return np.concatenate(which), np.concatenate(where)


def _shape(forward):
    return forward.n_all, forward.K, forward.m
