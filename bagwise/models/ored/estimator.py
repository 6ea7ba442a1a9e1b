"""ORed logistic regression: which instance carries which label, by exact maximum likelihood."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import log_expit
from sklearn.utils.validation import check_is_fitted

from bagwise.base import NO_LABEL, Traits
from bagwise.base.blocks import Block, InMemory
from bagwise.base.parameters import JOBS, Choice, Device, Flag, Number, Rules, Seed, Whole
from bagwise.compute.scaling import apply_scaling
from bagwise.errors import warn
from bagwise.models._shared.instance_softmax import InstanceSoftmaxClassifier
from bagwise.models.ored.fit import gpu_of, inference_of, learn
from bagwise.models.ored.kernels import METHODS, TOO_MANY_LABELS
from bagwise.models.ored.predict import LARGEST_MAX_LABELS, union_posterior, with_background
from bagwise.models.ored.tune import Setting, choose


class ORedLogisticRegression(InstanceSoftmaxClassifier):
    r"""Softmax over classes per instance; a bag's label set is the union of its instances' labels.

    The labels of instances are hidden; the likelihood of the bags' label sets sums over all of them
    exactly, in time linear in the instances.

    Parameters
    ----------
    alpha : float or "auto", default="auto"
        L2 penalty ``alpha / 2 * |W|^2`` on the weights of standardised features; intercepts are free. "auto"
        is 1, and for text (instances that are mostly zeros) the one of 1, 3 and 10 that predicts held-out
        bags best.
    solver : {"lbfgs", "em"}, default="lbfgs"
        "lbfgs" climbs the exact marginal likelihood; "em" is the generalised EM of [1]_: each iteration
        one gradient step with backtracking. The likelihood has several local maxima, and the two may end in
        different ones.
    max_iter : int, optional
        Limit on iterations; by default 1000 for "lbfgs", which warns when it gets there, and the 50 of [1]_
        for "em", which by then has not converged.
    tol : float, default=1e-4
        Stop when no entry of the gradient per bag is larger ("em": its norm).
    fit_intercept : bool, default=True
        Whether classes have an intercept.
    standardize : bool, default=True
        Whether to learn on standardised features. Instances that are mostly zeros (text) are divided by one
        number, the root mean square of their non-zero values, and not centred. ``coef_`` and ``intercept_``
        always speak of the features as given.
    background : {"auto", True, False, "anywhere", "empty"}, default="auto"
        Whether instances may carry no label at all, a class of its own: in any bag (True or "anywhere"), in
        bags with an empty label set only ("empty": all instances of other bags are labelled), or nowhere. In
        any bag, one instance is enough to explain a label, and the background takes the others: right for
        a call in a noisy recording, wrong for a topic that runs through a document. "auto" is False if every
        training bag has a label, True if there is one label (that is multi-instance logistic regression), and
        else the one of True and "empty" that predicts held-out bags better.
    unusable_bags : {"candidates", "drop", "error"}, default="candidates"
        What to do with training bags whose label set the model cannot produce (more labels than instances)
        or that have more than ``max_labels`` labels: take their labels as candidates only (every instance
        carries one of them, not all need occur), leave them out, or stop. A warning counts them.
    max_labels : int, default=16
        Largest label set that is treated exactly, the background not counted; time and memory double with
        each label.
    prune : float, default=0.0
        Share of training bags left out, those with the highest cost ``n |Y| 2^|Y|`` [1, Sec. 6.6.1]_.
    subset : float, default=1.0
        Share of bags drawn for each iteration of "em" [1, Sec. 6.6.2]_.
    kernel : {None, "rbf"}, default=None
        "rbf" replaces features by similarities ``exp(-|x - x_j|^2 / width)`` to a dictionary of training
        instances [1, Sec. 4.3]_.
    dictionary_size : int or float, default=1.0
        Number (int) or share (float) of instances in the dictionary [1, Sec. 6.6.3]_.
    width_scale : float, default=1.0
        Width of the kernel as a multiple of the mean squared distance between instances.
    bag_probability : {"auto", "noisy_or", "max", "score"}, default="auto"
        What the probability of a label in a bag is made of: ``1 - prod(1 - p)``, the model's own probability
        that some instance carries it; "max", the largest of its instances' as in [1]_; "score", the largest
        class score ``w_c . x + b_c``, calibrated, for instances that carry several labels at once, which
        take the probability from each other. "auto" is the one of "noisy_or" and "score" that predicts
        held-out bags better, and "noisy_or" with one label or ``decision="union"``.
    decision : {"calibrated", "union"}, default="calibrated"
        How ``predict`` decides. "calibrated": a sigmoid per label of the log-odds of ``bag_probability`` is
        learned on held-out bags (three folds; with more than 2,000 bags one third, once; fits that stop at
        ten times ``tol``), ``predict_proba`` is that sigmoid and ``predict`` takes what is above one half.
        The same folds settle what is "auto", each setting once more.
        "union": ``predict`` takes the labels given to instances as in [1]_, and ``predict_proba`` is not
        calibrated. Scores are the same, and of more than two classes in a 1-D ``y`` the best is taken.
    inference : str, default="auto"
        Algorithm for the posteriors: "auto", or by name those of `bagwise.models.ored.predict`, among
        them "forward" and "substitution", Algorithms 1 and 2 of [1]_.
    device : {"auto", "cpu", "cuda", "cuda:0", ...}, default="auto"
        Where dense instances are worked on; "auto" takes a GPU if there is one and the data are large. A
        GPU works in single precision, so models differ in their last digits. ``solver="em"``, a kernel, an
        algorithm of inference by name and text stay here.
    n_jobs : int, optional
        Threads for the posteriors; the result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of subsets and dictionary.

    Attributes
    ----------
    coef_ : ndarray of shape (n_labels, n_features)
        Weights; one more row for the background if ``has_background_``. With a kernel, weights of the
        similarities to ``dictionary_.rows_``.
    intercept_ : ndarray of shape (n_labels,)
        Intercepts, likewise.
    alpha_ : float
        The penalty used.
    background_ : {"anywhere", "empty", False}
        The background used.
    bag_probability_ : {"noisy_or", "max", "score"}
        What bags were judged by.
    has_background_ : bool
        Whether the last row stands for instances without a label.
    held_out_loss_ : ndarray
        Log loss per label of held-out bags, for each setting that "auto" left open: penalties, and again
        for each background, each with the better ``bag_probability``. NaN where nothing was held out.
    objective_ : ndarray of shape (n_iter_ + 1,)
        Penalised log-likelihood before the first and after every iteration; it never decreases, except with
        ``subset < 1``, where it is that of the bags drawn.
    n_iter_ : int
        Number of iterations.
    n_unusable_ : int
        Training bags that were not treated exactly.
    decision_slope_, decision_intercept_ : ndarray of shape (n_labels,) or None
        Calibration: log-odds of a label are ``slope * log-odds of bag_probability + intercept``.
    dictionary_ : RBFDictionary
        Only with a kernel.

    Notes
    -----
    Symbols of [1]_: ``w_c`` is a row of ``coef_`` with its intercept, ``p(y_bi = c | x_bi, w)`` the
    softmax, ``p(y_bi = c | Y_b, X_b, w)`` the second result of ``annotate(X, Y, return_proba=True)``,
    ``delta`` is ``dictionary_.width_``. The gradient of the objective is ``sum_i (Q_i - p_i) x_i`` with the
    posterior ``Q`` and the softmax ``p``, which is also the gradient of the M-step: climbing the
    likelihood itself costs no more than EM and converges much faster.

    The score of a label at an instance is its margin over the best other class; the score of a bag is the
    largest of its instances, positive exactly if the label is in the union of the labels given to instances.
    That union is too large where a bag has many instances, each of which may err: on birds it has a worse
    Hamming loss than no labels at all. Hence the calibrated decision. With one label the score of a bag is
    the calibrated log-odds. With a background and several labels, scores and labels of instances take the
    probability of an instance times that of its bag. Where ``bag_probability_`` is "score" they do so, too,
    but the score of a label at an instance is the class score plus the logarithm of the bag's probability,
    and the score of a bag is its calibrated log-odds.

    Instances that are known (``instance_y`` of ``fit``) enter exactly: with ``A_i`` the classes left to an
    instance, the likelihood of a bag sums over the labellings within them, and the posterior of an instance
    whose label is known is that label. A bag whose set contradicts what is known of its instances counts as
    one that the model cannot produce.

    **Differences from [1]**: features are standardised and a penalty is on by default, since the
    likelihood of separable data has no maximum and the 50 iterations of [1]_ act as the regulariser
    (``solver="em", alpha=0`` is the printed recipe). Posteriors are not computed by its Algorithm 2,
    which subtracts and loses all digits for confident instances. Label sets that the model cannot produce
    and instances without a label are dealt with; [1]_ is silent about both. ``annotate`` with known labels
    takes the most probable label of each instance as Eq. (27) does; the labels so found need not cover the
    bag's set.

    References
    ----------
    .. [1] A. T. Pham, R. Raich, X. Z. Fern: Dynamic programming for instance annotation in
       multi-instance multi-label learning. IEEE TPAMI 39(12), 2017.

    Examples
    --------
    >>> from bagwise import load_dataset
    >>> data = load_dataset("digits", n_bags=300)
    >>> model = ORedLogisticRegression().fit(data.bags, data.Y)
    >>> bool((model.annotate(data.bags) == data.instance_Y).mean() > 0.9)  # instance labels were not shown
    True
    """

    traits = Traits(
        instances="model",
        probabilities=True,
        sample_weight=True,
        known_instances=True,
        shards=True,
        device=("cpu", "cuda"),
    )

    _parameters: ClassVar[Rules] = {
        "alpha": (Choice("auto"), Number(0)),
        "solver": Choice("lbfgs", "em"),
        "max_iter": (Choice(None), Whole(1)),
        "tol": Number(0),
        "fit_intercept": Flag(),
        "standardize": Flag(),
        "background": Choice("auto", True, False, "anywhere", "empty"),
        "unusable_bags": Choice("candidates", "drop", "error"),
        "max_labels": Whole(1, LARGEST_MAX_LABELS - 1),
        "prune": Number(0, below=1),
        "subset": Number(above=0, high=1),
        "kernel": Choice(None, "rbf"),
        "dictionary_size": (Whole(1), Number(above=0, high=1)),
        "width_scale": Number(above=0),
        "bag_probability": Choice("auto", "noisy_or", "max", "score"),
        "decision": Choice("calibrated", "union"),
        "inference": Choice(*METHODS),
        "device": Device(),
        "n_jobs": JOBS,
        "random_state": Seed(),
    }

    def __init__(
        self,
        alpha="auto",
        *,
        solver="lbfgs",
        max_iter=None,
        tol=1e-4,
        fit_intercept=True,
        standardize=True,
        background="auto",
        unusable_bags="candidates",
        max_labels=16,
        prune=0.0,
        subset=1.0,
        kernel=None,
        dictionary_size=1.0,
        width_scale=1.0,
        bag_probability="auto",
        decision="calibrated",
        inference="auto",
        device="auto",
        n_jobs=None,
        random_state=None,
    ):
        self.alpha = alpha
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.background = background
        self.unusable_bags = unusable_bags
        self.max_labels = max_labels
        self.prune = prune
        self.subset = subset
        self.kernel = kernel
        self.dictionary_size = dictionary_size
        self.width_scale = width_scale
        self.bag_probability = bag_probability
        self.decision = decision
        self.inference = inference
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    # ------------------------------------------------------------------ learning

    def _fit(self, bags, Y, weights, known=None):
        block, gpu = Block(bags, Y, weights, known), gpu_of(self._fit_device, bags.X)
        if gpu is None:
            self._fit_blocks(InMemory(block))
            return
        from bagwise.models.ored.gpu import GPUBlocks

        self._fit_blocks(GPUBlocks(block, gpu))

    @property
    def _fit_device(self):
        """Where sums over bags are made: a GPU knows one way to climb and one algorithm."""
        elsewhere = self.solver == "lbfgs" and self.kernel is None and self.inference == "auto"
        return self.device if elsewhere else "cpu"

    def _fit_blocks(self, blocks):
        if self.subset < 1 and self.solver != "em":
            raise ValueError("subset < 1 draws bags for each iteration of solver='em'; choose that solver")
        if self.bag_probability == "score" and (self.decision == "union" or self._target == "multiclass"):
            raise ValueError(
                "bag_probability='score' is no probability before it is calibrated, which decision='union' "
                "and classes in a 1-D y do not do; choose 'auto', 'noisy_or' or 'max'"
            )
        if blocks.kind == "shards":
            for name, value in (("solver", "lbfgs"), ("kernel", None), ("prune", 0.0)):
                if getattr(self, name) != value:
                    given = f"{name}={getattr(self, name)!r}"
                    raise ValueError(f"{given} needs all bags at once; on shards leave it at {value!r}")
        background = {True: "anywhere"}.get(self.background, self.background)
        if self.decision == "union" and "auto" not in (self.alpha, background):  # nothing is left open
            kind = "noisy_or" if self.bag_probability == "auto" else self.bag_probability
            setting, calibration = Setting(self.alpha, background, kind), None
            self.held_out_loss_ = np.full(1, np.nan)
        else:
            setting, calibration, self.held_out_loss_ = choose(self, blocks, background)
        learn(self, blocks, setting)
        self.decision_slope_ = self.decision_intercept_ = None
        if calibration is not None and self._target != "multiclass":
            self.decision_slope_, self.decision_intercept_ = calibration

    def log_likelihood(self, X, Y):
        """Exact log probability of each bag's label set; -inf for sets that the model cannot produce.

        Returns
        -------
        ndarray of shape (n_bags,)
            NaN, with a warning, for bags of more than ``max_labels`` labels.
        """
        check_is_fitted(self)
        bags = self._as_bags(X, reset=False)
        return self._posterior(bags, self._known_labels(Y, bags), "their log-likelihood is NaN")[1]

    # ------------------------------------------------------------------ predicting

    def _logits(self, bags):
        if self.kernel is None:
            # one product repays the way to the GPU for large data alone
            gpu = gpu_of(self.device, bags.X) if self.device != "auto" or bags.n_instances > 1e6 else None
            if gpu is None:
                return super()._logits(bags)
            from bagwise.models.ored.gpu import logits_on_gpu

            return logits_on_gpu(bags.X, self.coef_, self.intercept_, gpu)
        scaled = apply_scaling(bags.X, self._scaling, bags.dtype)
        return self.dictionary_.transform(scaled) @ self.coef_.T + self.intercept_

    def _instance_logits(self, bags):
        logits = self._logits(bags)
        calibration = self._calibrated
        judged = self.has_background_ or self._kind == "score"
        if calibration is None or not judged or self._n_labels == 1:
            return logits
        # p_i(c) times the bag's p(c): beside a background that takes most instances, or where classes do not
        # compete, the bag says which labels are there at all
        log_p = log_expit(calibration.log_odds(self._log_odds(bags)))
        logits[:, : self._n_labels] += log_p[bags.index]
        return logits

    def _posterior(self, bags, Y, otherwise):
        logits = np.ascontiguousarray(self._logits(bags), dtype=np.float64)
        Q, loglik, status = union_posterior(
            logits,
            bags.offsets,
            with_background(Y, self.background_),
            background=self.background_ == "anywhere",
            **inference_of(self),
        )
        n_over = int((status == TOO_MANY_LABELS).sum())
        if n_over and otherwise:
            message = f"{n_over} bags have more than max_labels={self.max_labels} labels; {otherwise}"
            warn(message, UserWarning)
        return Q, loglik

    def _annotate(self, bags, Y):
        if Y is None:
            return super()._annotate(bags, None)
        otherwise = (
            "their instances are labelled by the softmax within the bag's set, not by the exact posterior"
        )
        Q, _ = self._posterior(bags, Y, otherwise)
        labels = Q.argmax(axis=1)
        return np.where((Q.max(axis=1) > 0) & (labels < self._n_labels), labels, NO_LABEL)

    def _instance_probabilities(self, bags, Y):
        if Y is None:
            return super()._instance_probabilities(bags, None)
        return self._posterior(bags, Y, otherwise=None)[0][:, : self._n_labels]  # said by `_annotate`
