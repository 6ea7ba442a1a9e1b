"""MIMLmix: labels from topics, instances of several views from their labels; views may be missing."""

from __future__ import annotations

from typing import ClassVar

from bagwise.base import Traits
from bagwise.base.parameters import Choice, Flag, Number, PerView, Seed, Whole
from bagwise.models.mimlmix.fit import MixtureLearner

_AUTO = Choice("auto")


class MIMLMix(MixtureLearner):
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
    >>> from bagwise.datasets.mimlmix_like import make_mimlmix_like
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
