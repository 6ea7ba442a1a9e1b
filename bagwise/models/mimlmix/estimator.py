"""MIMLmix: labels from topics, instances of several views from their labels; views may be missing."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import MultiViewBags
from bagwise.base import NO_LABEL, MIMLClassifier, Traits
from bagwise.base.blocks import blocks_in_memory
from bagwise.base.parameters import Choice, Flag, Number, PerView, Seed, Whole, check_parameters
from bagwise.compute.threads import small_products
from bagwise.errors import DataError
from bagwise.metrics import top_labels
from bagwise.models.mimlmix.fit import learn, learn_batch
from bagwise.models.mimlmix.fit_em import as_views
from bagwise.models.mimlmix.predict import distribution_of, infer_within, predict_views

_AUTO = Choice("auto")


class MIMLMix(MIMLClassifier):
    """Multi-instance multi-label mixture model for one view or several, some of which may be missing.

    A bag's labels come from topics (latent Dirichlet allocation over label sets); every instance of every
    view comes from one of the bag's labels: from a Gaussian in continuous views, from a multinomial in count
    views. Training is variational EM within the known label sets, prediction infers labels and topics in
    turn.

    Parameters
    ----------
    eta : float or "auto", default="auto"
        Strength of the topics at prediction; 0 is MIMLmix*, which ignores label correlation.
    xi : float or "auto", default="auto"
        Prior of every label at prediction. Small values allow few labels per bag only.
    kappa : float, "auto", sequence or dict of view to number, default="auto"
        Pseudo-counts of the background distribution in count views, > 0. One number serves all views; a
        sequence has an entry per view; views that a dict does not name are searched, each for itself.
    nu : float, "auto", sequence or dict of view to number, default="auto"
        Pseudo-observations of the prior covariance in continuous views, one or several as for ``kappa``; 0 is
        maximum likelihood.
    alpha_train : float or "auto", default="auto"
        Dirichlet prior of a bag's labels in training, > 0.
    n_topics : int or "auto", default="auto"
        Number of topics of labels; "auto" is the one that best completes label sets of held-out bags.
    covariance : {"full", "tied", "diag"}, default="full"
        Covariances in continuous views: one per label, one for all labels, or diagonal ones.
    width : float, default=0.1
        Prior covariance, as a share of each feature's variance.
    tied_start : int, default=10
        EM iterations with one tied covariance before full ones; 0 for none.
    view_kinds : {"auto", "counts", "gaussian"}, sequence or dict of view to kind, default="auto"
        What the numbers of each view are. "auto" takes a view for counts if no number is negative and at
        least three quarters of them are 0 (nine tenths, unless all are whole: weights of words such as
        tf-idf); ``view_kinds_`` says what came of it. Counts stay sparse.
    background : {"counts", "uniform"}, default="counts"
        Distribution that count views are smoothed with: that of all training instances, or the flat one.
    weighted_views : bool, default=True
        Whether views are weighted by how well labels explain them; otherwise they count alike.
    tau : float, sequence or dict of view to number, default=5.0
        Prior of the view weights, one for all or one per view; large values make them equal.
    sets : {"top", "threshold"}, default="top"
        How label sets are cut: the best L-bar labels, L-bar being the rounded mean number of labels of
        training bags; or all labels with a score above a threshold learned on held-out training bags.
    sampling : bool, default=False
        Whether prediction draws label tokens, as printed, or uses their expectations.
    inference : {"vb", "cvb0"}, default="vb"
        Prediction with E ln theta (variational Bayes) or with ln E theta.
    unlabelled : {"background", "skip"}, default="background"
        Training bags without any label teach one more component, the background, or are left out.
    mode : {"tuned", "paper"}, default="tuned"
        "paper" replaces every "auto" by the published setting, draws label tokens, averages the topics over
        all rounds and starts with full covariances; see Notes.
    alpha_topic, topic_smoothing : float, default=0.1, 0.01
        Dirichlet parameters of a bag's topics and of a topic's labels.
    max_iter : int, default=200
        Limit of EM iterations.
    tol : float, default=1e-5
        Relative rise of the objective below which EM ends; 1e-6 doubles the iterations and ranks no better.
    max_inner : int, default=10
        Limit of E-step sweeps per bag and EM iteration in training.
    max_rounds : int, default=20
        Limit of rounds between labels and topics at prediction.
    random_state : int, RandomState instance or None, default=None
        Seed of topics, held-out bags and sampling.

    Attributes
    ----------
    elbo_ : ndarray
        Objective of every EM iteration under the final view weights: the evidence lower bound and the
        logarithm of the prior of the label distributions. It never falls.
    objective_ : ndarray
        The same.
    n_iter_ : int
        EM iterations.
    label_topics_ : ndarray of shape (n_topics, n_labels)
        Distribution over labels of every topic.
    view_weights_ : dict of str to float
        Weight of every view; they sum to 1. A view that no training bag has, or whose instances are all
        alike, says nothing and gets 0.
    view_kinds_ : dict of str to str
        What each view was taken for: "counts" or "gaussian".
    settings_ : dict
        Settings in use, chosen or given. ``kappa`` and ``nu`` are dicts of view to number where several views
        have their own.
    search_ : list of (dict, float)
        Settings tried and their average precision on held-out training bags.
    components_ : ndarray
        Labels that the model knows: those with a training bag; ``n_labels`` stands for the background.
    views_ : dict of str to dict
        Learned distributions of every view; see `label_distribution`.
    n_batches_, n_bags_seen_ : int
        Batches and bags learned from so far; see `partial_fit`.
    n_top_ : int
        L-bar, over all bags seen.
    threshold_ : float
        Threshold on scores, with ``sets="threshold"``.

    Notes
    -----
    Symbols of [1]_: theta'_n topics of a bag, beta' ``label_topics_``, beta_vy ``views_``, gamma_n what
    `label_scores` returns, phi_nvm what `instance_scores` returns, w_v ``view_weights_``, alpha'
    ``alpha_topic``, K ``n_topics``, eta, xi and tau as they are called.

    The score of `decision_function` is gamma for labels in the predicted set and -1/gamma for the others: it
    has the order of gamma within a bag, and its sign says what is predicted.

    `bagwise.ShardedBags` of one part are bags in memory. With several parts settings are chosen on up to
    4,300 bags and topics on up to 200,000 label sets; EM is the same, with gamma from a cold start in every
    pass.

    *Differences from the paper*, all but the first two also in ``mode="paper"``:

    - The prior in training, ``alpha_train``, is a number of its own and larger (the paper takes eta, which
      makes MIMLmix* improper); smoothing, eta and xi are chosen on held-out bags.
    - Expected label tokens replace draws, topics of a bag are inferred by ten sweeps of CVB0 (sharper topics
      settle too early on what the first, flat round suggests); covariances start tied. ``mode="paper"``: eta
      .3 for several views and .2 for one, xi .1, ``alpha_train`` = eta (.1 if eta is 0), kappa .1, nu 1, K
      200 or 50.
    - The loop of Algorithm 2 runs *until* the improvement is small (printed: while), gamma is kept between
      EM iterations, which makes the objective monotone, and the change of gamma is averaged over the bag's
      labels.
    - Eqs. 7-9 are smoothed by priors, without which unseen words divide 0 by 0 and covariances collapse.
    - The rounds of Algorithm 3 end when theta' moves by less than 0.01 (with draws not before the fourth), or
      after ``max_rounds``; each round infers gamma from a cold start.
    - View weights follow the scaled slopes, w_v in proportion to log2(Delta_v - min Delta + 2) + tau_v,
      estimated after iterations 4 and 7 only, because that step does not raise the bound.
    - Views that say nothing (no training instance, or all alike) get no weight; by the formula they would get
      the largest, since the likelihood of a constant is high under any label. Constant features are left out.
    - The multinomial coefficient is part of the bound and of Delta_v; continuous views are standardised
      first.
    - Topics are learned by CVB0 instead of variational Bayes, which is much cheaper per sweep.
    - A label without training bags is no candidate. A bag without instances gets the prior.

    References
    ----------
    .. [1] C.-T. Nguyen, X. Wang, J. Liu, Z.-H. Zhou: Labeling complicated objects: multi-view multi-instance
       multi-label learning. AAAI 2014.

    Examples
    --------
    >>> from bagwise.datasets import make_mimlmix_like
    >>> data = make_mimlmix_like("imageclef", 120, missing=0.3)
    >>> model = MIMLMix(eta=3, xi=0.1, kappa=300, alpha_train=5, n_topics=5, random_state=0)
    >>> model = model.fit(data.bags[:100], data.Y[:100])
    >>> model.predict(data.bags[100:]).shape
    (20, 78)
    >>> sorted(model.instance_scores(data.bags[100:]))
    ['textual', 'visual']
    """

    traits = Traits(instances="model", sparse=True, views=True, empty_bags=True, shards=True)

    _parameters: ClassVar = {
        "eta": (_AUTO, Number(0)),
        "xi": (_AUTO, Number(above=0)),
        "kappa": PerView(_AUTO, Number(above=0)),
        "nu": PerView(_AUTO, Number(0)),
        "alpha_train": (_AUTO, Number(above=0)),
        "n_topics": (_AUTO, Whole(1)),
        "covariance": Choice("full", "tied", "diag"),
        "width": Number(above=0),
        "tied_start": Whole(0),
        "view_kinds": PerView(Choice("auto", "counts", "gaussian")),
        "background": Choice("counts", "uniform"),
        "weighted_views": Flag(),
        "tau": PerView(Number(0)),
        "sets": Choice("top", "threshold"),
        "sampling": Flag(),
        "inference": Choice("vb", "cvb0"),
        "unlabelled": Choice("background", "skip"),
        "mode": Choice("tuned", "paper"),
        "alpha_topic": Number(above=0),
        "topic_smoothing": Number(above=0),
        "max_iter": Whole(1),
        "tol": Number(0),
        "max_inner": Whole(1),
        "max_rounds": Whole(0),
        "random_state": Seed(),
    }

    def __init__(
        self,
        eta="auto",
        xi="auto",
        kappa="auto",
        nu="auto",
        alpha_train="auto",
        n_topics="auto",
        *,
        covariance="full",
        width=0.1,
        tied_start=10,
        view_kinds="auto",
        background="counts",
        weighted_views=True,
        tau=5.0,
        sets="top",
        sampling=False,
        inference="vb",
        unlabelled="background",
        mode="tuned",
        alpha_topic=0.1,
        topic_smoothing=0.01,
        max_iter=200,
        tol=1e-5,
        max_inner=10,
        max_rounds=20,
        random_state=None,
    ):
        self.eta = eta
        self.xi = xi
        self.kappa = kappa
        self.nu = nu
        self.alpha_train = alpha_train
        self.n_topics = n_topics
        self.covariance = covariance
        self.width = width
        self.tied_start = tied_start
        self.view_kinds = view_kinds
        self.background = background
        self.weighted_views = weighted_views
        self.tau = tau
        self.sets = sets
        self.sampling = sampling
        self.inference = inference
        self.unlabelled = unlabelled
        self.mode = mode
        self.alpha_topic = alpha_topic
        self.topic_smoothing = topic_smoothing
        self.max_iter = max_iter
        self.tol = tol
        self.max_inner = max_inner
        self.max_rounds = max_rounds
        self.random_state = random_state

    @classmethod
    def _test_params(cls):
        return {"eta": 0.3, "xi": 0.1, "kappa": 5.0, "nu": 5.0, "alpha_train": 5.0, "n_topics": 3,
                "max_iter": 30, "random_state": 0}  # fmt: skip

    # ------------------------------------------------------------------ learning

    def _fit(self, bags, Y):
        self._fit_blocks(blocks_in_memory(bags, Y))

    def _fit_blocks(self, blocks):
        if len(blocks) == 1:  # of shards with one part, too: they are no more than bags in memory
            blocks = blocks_in_memory(*blocks.only()[:2])
        with small_products(0.0):  # labels are spread over the cores; each product stays on its own
            learn(self, blocks)

    def partial_fit(self, X, y, classes=None):
        """Learn from one more batch of bags by stochastic variational inference.

        The first batch is learned as by `fit`, which fixes features, settings and view weights; every later
        one moves the averaged statistics, and the threshold of ``sets="threshold"``, by a step of
        (t + 1)^-0.8; L-bar is the mean over all bags seen. New labels may occur in later batches. May also
        follow a `fit`.

        Parameters
        ----------
        X : Bags, MultiViewBags, list of 2-D arrays, or table
            The batch.
        y : labels as in ``fit``
            Their labels.
        classes : array, optional
            All classes, when ``y`` holds one class per bag and the first batch may lack some.

        Returns
        -------
        self
        """
        if not hasattr(self, "views_"):
            missing = np.setdiff1d(classes, y) if classes is not None and np.ndim(y) == 1 else np.empty(0)
            if missing.size:
                raise DataError(f"the first batch lacks the class {missing[0]!r}; make it larger")
            return self.fit(X, y)
        check_parameters(self, self._parameters)
        bags = self._as_bags(X, reset=False)
        Y = self._known_labels(y, bags)
        learn_batch(self, bags, Y)
        return self

    # ------------------------------------------------------------------ answers

    def _infer(self, bags, want_phi=False):
        settings = {**self._fixed, "eta": self.settings_["eta"], "xi": self.settings_["xi"]}
        weights = np.array(list(self.view_weights_.values()))
        topics = self._topics, self._topic_share
        return predict_views(as_views(bags), self.views_, weights, *topics, settings, want_phi=want_phi)

    def _spread(self, values):
        """Columns of components brought to the labels; 0 for labels without a training bag."""
        result = np.zeros((len(values), self._n_labels))
        result[:, self.components_[: self._n_real]] = values[:, : self._n_real]
        return result

    def label_scores(self, X, *, normalise=False):
        """Dirichlet parameters gamma of every bag: expected number of its instances per label, and the prior.

        Parameters
        ----------
        X : Bags, MultiViewBags, list of 2-D arrays, or table
            The bags.
        normalise : bool, default=False
            Whether to divide by their sum: expected shares of labels.

        Returns
        -------
        ndarray of shape (n_bags, n_labels)
            0 for labels without a training bag.
        """
        check_is_fitted(self)
        gamma = self._infer(self._as_bags(X, reset=False))[0]
        if normalise:
            gamma = gamma / gamma.sum(axis=1, keepdims=True)
        return self._spread(gamma)

    def transform_topics(self, X):
        """Topics theta' of every bag, (n_bags, n_topics)."""
        check_is_fitted(self)
        return self._infer(self._as_bags(X, reset=False))[1]

    def _scores(self, bags):
        gamma = self._infer(bags)[0]
        scores = self._spread(gamma)
        if self.sets == "threshold":
            return scores - self.threshold_
        chosen = top_labels(scores, self.n_top_) & (scores > 0)
        if len(self.components_) > self._n_real:
            chosen &= scores > gamma[:, -1:]
        return np.where(chosen, scores, -1.0 / np.maximum(scores, 1e-12))

    def _instance_scores(self, bags):
        phi = self._infer(bags, want_phi=True)[2]
        return self._by_view(bags, {v: self._spread(values) for v, values in phi.items()})

    def _by_view(self, bags, values):
        """A dict for several views, the only array for one."""
        return values if isinstance(bags, MultiViewBags) else next(iter(values.values()))

    def _annotations(self, bags, Y, want_proba):
        if Y is None:
            phi = self._infer(bags, want_phi=True)[2]
        else:
            sets = Y[:, self.components_[: self._n_real]]
            if len(self.components_) > self._n_real:
                sets = np.column_stack([sets, np.zeros(len(sets), dtype=np.int8)])
            weights = np.array(list(self.view_weights_.values()))
            phi = infer_within(as_views(bags), sets, self.views_, weights, self.settings_["alpha_train"])
        named = np.append(self.components_[: self._n_real], NO_LABEL)
        labels = {}
        for v, values in phi.items():
            best = np.minimum(values.argmax(axis=1), self._n_real)
            labels[v] = np.where(values.any(axis=1), named[best], NO_LABEL)
        proba = {v: self._spread(values) for v, values in phi.items()} if want_proba else None
        return self._by_view(bags, labels), proba and self._by_view(bags, proba)

    def label_distribution(self, label, view=None):
        """What a label looks like in a view, in the units of the data.

        Parameters
        ----------
        label : int
            Label index; one with a training bag.
        view : str, optional
            The view; may be left out if there is only one.

        Returns
        -------
        dict
            ``{"words": probabilities}``, or ``{"mean": ..., "covariance": ...}``.
        """
        check_is_fitted(self)
        at = np.flatnonzero(self.components_[: self._n_real] == label)
        if not at.size:
            raise DataError(f"label {label} has no training bag, so nothing is known about it")
        if view is None and len(self.views_) > 1:
            raise DataError(f"name one of the views {', '.join(self.views_)}")
        learned = self.views_[next(iter(self.views_)) if view is None else view]
        return distribution_of(learned, int(at[0]))
