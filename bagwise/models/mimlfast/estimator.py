"""MIMLfast: a linear space shared by all labels, sub-concepts, and a ranking loss learned in seconds."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bagwise.base import MIMLClassifier, Traits, best_rows
from bagwise.base._classifier import check_piece
from bagwise.base.parameters import JOBS, Choice, Device, Flag, Number, Rules, Seed, Whole, check_parameters
from bagwise.compute.calibration import best_offset
from bagwise.compute.devices import gpu_for
from bagwise.compute.threads import Workers
from bagwise.models._shared.scores import margins
from bagwise.models.mimlfast.fit import (
    SMALL,
    initial_state,
    learn,
    learn_from_parts,
    learn_piece,
    make_plan,
    piece_plan,
    scale_of_parts,
)
from bagwise.models.mimlfast.fit_sgd import answer
from bagwise.models.mimlfast.predict import (
    N_SLICES,
    Scale,
    bag_scores,
    instance_scores,
    learn_scale,
    make_forward,
    sub_concepts,
)

RULES = {"calibrated": None, "text": 0.0, "line17": -1.0, "code": 1.0}
_IN_USE = 0.05  # share of a label's bags that makes a sub-concept count as used


class MIMLFast(MIMLClassifier):
    """Rank labels by linear sub-concept models over a shared linear space, with a dummy label as threshold.

    Parameters
    ----------
    n_components : int, default=100
        Dimension m of the shared space.
    n_sub_concepts : int or "auto", default="auto"
        Sub-concepts K per label; a label need not use them all. "auto" is 5 above 3,000 bags (and for
        ``partial_fit``); below, 5 where that lowers the ranking loss on held-out bags by a twentieth, and
        else 1. Where no bags are held out it is 1 up to 500 bags.
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
    device : {"auto", "cpu", "cuda", "cuda:0", ...}, default="auto"
        Where mini-batches of dense instances are worked on in ``fit``, and dense instances scored; "auto"
        takes a GPU if there is one and the data are large. Sums are then rounded in another order, so models
        differ in their last digits. Other solvers and text stay here.
    n_jobs : int, optional
        Threads of "minibatch", -1 for all cores; None: those of the matrix library. Results are the same.
    random_state : int, RandomState instance or None, default=None
        Seed.

    Attributes
    ----------
    shared_space_ : ndarray of shape (n_components, n_features)
        The map into the shared space, for features as given.
    shared_intercept_ : ndarray of shape (n_components,)
        Its constant part.
    n_sub_concepts_ : int
        The K that was taken.
    label_weights_ : ndarray of shape (n_labels + 1, n_sub_concepts_, n_components)
        Sub-concepts of every label; the dummy label comes last.
    offset_ : float
        What a label's score must exceed the dummy's by.
    sub_concept_counts_ : ndarray of shape (n_labels, n_sub_concepts_)
        How often each was the best of its label on training bags with that label, in the last pass.
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
    instead of the last. (5) "minibatch" minimises Eq. (5) with exact ranks R(X, y), not with sampled ones.

    Irrelevant labels are drawn with replacement, at most as often as there are any. Norms above the cap are
    scaled down, others left alone. The dummy has K sub-concepts, too.

    On `bagwise.ShardedBags` of several parts, every round makes one pass of mini-batches over each part from
    the same state and goes on from the average of where they came to; the result depends on the parts and the
    seed, not on the workers. One part is learned as in memory.

    References
    ----------
    .. [1] S.-J. Huang, W. Gao, Z.-H. Zhou: Fast multi-instance multi-label learning. AAAI 2014.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=120, random_state=0)
    >>> model = MIMLFast(n_components=20, n_sub_concepts=1, random_state=0).fit(data.bags, data.Y)
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.9)
    True
    >>> model = model.partial_fit(data.bags[:40], data.Y[:40])  # goes on where fit ended
    >>> sub_concept, instance = model.sub_concepts(data.bags)
    >>> bool((instance == model.key_instances(data.bags)[:, :, 0]).all())
    True
    """

    traits = Traits(instances="model", label_equivariant=False, shards=True, device=("cpu", "cuda"))
    _parameters: ClassVar[Rules] = {
        "n_components": Whole(1),
        "n_sub_concepts": (Choice("auto"), Whole(1)),
        "max_norm": Number(above=0),
        "solver": Choice("auto", "minibatch", "asgd", "sgd"),
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
        "device": Device(),
        "n_jobs": JOBS,
        "random_state": Seed(),
    }

    def __init__(
        self,
        n_components=100,
        n_sub_concepts="auto",
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
        device="auto",
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
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def _test_params(cls):
        return {"n_components": 10, "n_sub_concepts": 2, "max_iter": 20, "random_state": 0}

    def _fit(self, bags, Y):
        plan = make_plan(self, len(bags), bags.X)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        store = None  # instances on a GPU
        if plan.solver == "minibatch" and not bags.is_sparse:
            gpu = gpu_for(self.device, bags.n_instances * bags.n_features)
            if gpu is not None:
                from bagwise.models.mimlfast.gpu import scaled_instances

                store, scale = scaled_instances(bags.X, self.scaling, plan.norm, gpu)
        if store is None:
            scale = learn_scale(bags.X, self.scaling, plan.norm)
        threads: Any = Workers(self.n_jobs, N_SLICES) if store is None else nullcontext()
        with threads as workers:
            forward_of = partial(make_forward, bags, Y, scale, plan, workers, store=store)
            learned = learn(forward_of, Y, plan, rng)
        self.solver_ = plan.solver
        self._scale: list[Any] = list(scale)
        self._publish(learned)

    def _fit_blocks(self, blocks):
        """Learn from shards: rounds of local passes over the parts; one part is learned as in memory."""
        if len(blocks) == 1:
            block = blocks.load(0)
            return self._fit(block.bags, block.Y)
        plan = make_plan(self, max(blocks.n_bags, SMALL + 1))
        if plan.solver != "minibatch":
            raise ValueError(f"solver={self.solver!r} goes from bag to bag; on shards leave it at 'auto'")
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        dtype = blocks.shards.dtype
        scale = scale_of_parts(blocks, self.scaling, plan.norm, self.n_features_in_, dtype)
        self.solver_, self._scale = plan.solver, list(scale)
        self._publish(learn_from_parts(blocks, plan, scale, rng))
        return None

    def _publish(self, learned):
        """Parameters for features as given; the scaled instance is ((x - mean) * factor, constant)."""
        self._state, self._window = learned.state, learned.window
        self.n_iter_, self.objective_ = learned.n_epochs, learned.history
        A, W = (values.astype(np.float64) for values in answer(self._state))
        scale = Scale(*self._scale)
        space = A[:-1] * scale.factor.astype(np.float64)[:, None]
        self.shared_space_ = np.ascontiguousarray(space.T)
        self.shared_intercept_ = scale.constant * A[-1] - scale.mean.astype(np.float64) @ space
        self.label_weights_, self.n_sub_concepts_ = W, W.shape[1]
        self.sub_concept_counts_ = learned.used[:-1]
        total = self.sub_concept_counts_.sum(axis=1, keepdims=True)
        often = self.sub_concept_counts_ >= np.maximum(_IN_USE * total, 1)
        self.sub_concepts_in_use_ = often.sum(axis=1)
        rule = RULES[self.threshold_rule]
        self.offset_ = best_offset(*self._window) if rule is None else rule

    def partial_fit(self, X, y, classes=None):
        """Learn from one more piece of data, in one pass.

        Training goes on where ``fit`` or the last piece left it: averages, moments and the number of steps
        are kept, also by `bagwise.save`. What came first fixes labels, solver, shape and the scale of
        features. Pieces are scored before they are learned, and the offset is chosen on these scores.

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
        bags, Y = check_piece(self, X, y, classes, first=first)
        plan = piece_plan(self, len(bags), first=first)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        rng = np.random.default_rng([seed, 0 if first else self._state["t"]])
        if first:
            self.solver_, self._scale = plan.solver, list(learn_scale(bags.X, self.scaling, plan.norm))
        with Workers(self.n_jobs, N_SLICES) as workers:
            forward = make_forward(bags, Y, Scale(*self._scale), plan, workers)
            state = initial_state(rng, forward.shape, forward.n_inputs) if first else self._state
            window = None if first else self._window
            self._publish(learn_piece(forward, Y, plan, state, window, rng))
        return self

    _scores, _instance_scores = bag_scores, instance_scores

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
            Number of the sub-concept, 0 to ``n_sub_concepts_ - 1``.
        instance : ndarray of shape (n_bags, n_labels)
            Row number of ``bags.X``: the key instance.
        """
        check_is_fitted(self)
        return sub_concepts(self, self._as_bags(X, reset=False))
