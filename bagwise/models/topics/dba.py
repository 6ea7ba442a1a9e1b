"""DBA: each instance has a class and words of it, and classes that instances have make the bag's labels."""

from __future__ import annotations

import numpy as np
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from bagwise.bags import runs
from bagwise.base import Traits
from bagwise.base.parameters import Choice, Flag, Number, Seed, Whole
from bagwise.compute.segment import segment_mean
from bagwise.errors import warn
from bagwise.models._shared.scores import constant_score
from bagwise.models.topics.alignment import Bound, fit_alignment, infer
from bagwise.models.topics.base import TopicClassifier
from bagwise.models.topics.words import learn_words, word_counts
from bagwise.utils.arrays import check_memory

_CELLS = 1 << 22  # probabilities of instances held at a time in prediction


class DBA(TopicClassifier):
    r"""Dirichlet-Bernoulli alignment: classes of instances, words of classes, labels from shares of classes.

    A bag has shares of classes, every instance a class drawn from them and words drawn from the class; the
    bag carries a label the more surely the more of its instances have that class. Made for counts of words;
    other instances become words by k-means.

    Parameters
    ----------
    n_words : int or "auto", default="auto"
        Number of words of a codebook; "auto" is a tenth of the training instances, but at least 10 and at
        most 200. Try 50, 100, 200 and 500. Not used for counts.
    alpha : float, default=1.0
        Dirichlet prior of the shares of classes in a bag; below 1 few classes are preferred.
    smoothing : float, default=0.1
        Added to the counts of words of every class.
    words : {"auto", "counts", "codebook"}, default="auto"
        What instances are: counts of words (or weights that are not negative), or anything, of which k-means
        makes words. "auto" takes them for counts if they are not negative and mostly zeros.
    intercept : bool, default=True
        Whether the log-odds of a label have a constant. Without it, as in [1]_, a label of which a bag has
        nothing has the probability 1/2, and the best L-bar labels are predicted, L-bar being the rounded mean
        number of labels of training bags.
    ridge : float, default=0.01
        Penalty of the squared alignment, which keeps it finite.
    max_iter : int, default=100
        Limit on EM iterations.
    tol : float, default=1e-5
        Relative rise of the bound below which EM ends.
    max_inner : int, default=5
        Most sweeps over the instances in one EM iteration.
    random_state : int, RandomState instance or None, default=None
        Seed of the codebook; nothing else is random.

    Attributes
    ----------
    components_ : ndarray
        Labels that the model knows: those with a training bag; ``n_labels`` stands for the background.
    log_words_ : ndarray of shape (n_components, n_words)
        Logarithms of the probabilities of words.
    slopes_, intercepts_ : ndarray of shape (n_known_labels,)
        Alignment of labels: their log-odds are ``slope * share + intercept``.
    words_ : dict
        How instances become words.
    objective_ : ndarray of shape (n_iter_,)
        Lower bound on the logarithm of the probability of words and labels, and of the priors; it never
        falls.
    n_iter_ : int
        EM iterations.
    n_top_ : int
        L-bar.

    Notes
    -----
    With classes z of the n instances of a bag, shares :math:`\bar z_l` of class l among them and words x,

    .. math:: \theta \sim Dir(a),\quad z_i \sim \theta,\quad x_i \sim Mult(\beta_{z_i}),\quad
        y_l \sim Bernoulli(\sigma(\lambda_l \bar z_l + \nu_l)) .

    a is ``alpha``, :math:`\beta` the exponential of ``log_words_``, :math:`\lambda` ``slopes_``, :math:`\nu`
    ``intercepts_``. Training climbs a variational bound with :math:`q(\theta) = Dir(\gamma)`, one
    distribution :math:`\phi_i` per instance, and for the logistic function the quadratic bound of Jaakkola
    and Jordan; every step is exact for its variables. Prediction infers :math:`\phi` without labels; the
    score of a label is :math:`\lambda_l \bar\phi_l + \nu_l`, that of an instance :math:`\phi_{il}` (with a
    single label less one half). Where ``intercept=False``, the score is the probability of the label if it is
    among the predicted ones, and minus one over it if not.

    One EM iteration takes :math:`O(nnz\, L + N L)` steps for nnz counts, N instances and L labels.

    *Differences from* [1]_. (1) Inference and updates are ours; the paper's own are not known in detail.
    (2) ``intercept``. (3) Slopes are not negative. (4) Training bags without labels teach a class of their
    own, the background, which no label is aligned to: without it a single label would explain everything.
    (5) Labels without a training bag are never predicted.

    References
    ----------
    .. [1] S.-H. Yang, H. Zha, B.-G. Hu: Dirichlet-Bernoulli alignment: a generative model for multi-class
       multi-label multi-instance corpora. NIPS 2009.

    Examples
    --------
    >>> from bagwise.datasets.synthetic import make_miml
    >>> data = make_miml(n_bags=120, random_state=0)
    >>> model = DBA(random_state=0).fit(data.bags, data.Y)
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.8)
    True
    >>> bool((model.annotate(data.bags, data.Y) == data.instance_Y).mean() > 0.8)  # not shown in training
    True
    """

    traits = Traits(instances="model", probabilities=True)

    _parameters = {
        "n_words": (Choice("auto"), Whole(1)),
        "alpha": Number(above=0),
        "smoothing": Number(above=0),
        "words": Choice("auto", "counts", "codebook"),
        "intercept": Flag(),
        "ridge": Number(above=0),
        "max_iter": Whole(1),
        "tol": Number(0),
        "max_inner": Whole(1),
        "random_state": Seed(),
    }

    def __init__(
        self,
        n_words="auto",
        alpha=1.0,
        smoothing=0.1,
        *,
        words="auto",
        intercept=True,
        ridge=0.01,
        max_iter=100,
        tol=1e-5,
        max_inner=5,
        random_state=None,
    ):
        self.n_words = n_words
        self.alpha = alpha
        self.smoothing = smoothing
        self.words = words
        self.intercept = intercept
        self.ridge = ridge
        self.max_iter = max_iter
        self.tol = tol
        self.max_inner = max_inner
        self.random_state = random_state

    @classmethod
    def _test_params(cls):
        return {"random_state": 0}

    def _fit(self, bags, Y):
        rng = check_random_state(self.random_state)
        sets = self._set_up(Y)
        advice = "take a sample of the bags, or fewer labels"
        what = f"probabilities of {bags.n_instances:,} instances for {sets.shape[1]:,} labels"
        check_memory(32.0 * bags.n_instances * sets.shape[1], what, advice)
        self.words_ = learn_words("X", bags, self.words, self.n_words, rng)
        model, _, self.objective_ = fit_alignment(
            word_counts(bags.X, self.words_),
            bags.offsets,
            sets,
            self._n_real,
            Bound(float(self.alpha), float(self.smoothing), float(self.ridge), bool(self.intercept)),
            max_iter=self.max_iter,
            tol=self.tol,
            max_inner=self.max_inner,
        )
        self.log_words_, self.slopes_, self.intercepts_ = model
        self.n_iter_ = len(self.objective_)
        self._never = -abs(constant_score(np.zeros(len(Y))))
        if self.n_iter_ == self.max_iter and self.tol > 0:
            warn(
                f"EM stopped at max_iter={self.max_iter} with the bound still rising; raise it",
                ConvergenceWarning,
            )

    def _shares(self, bags, sets):
        phi = np.empty((bags.n_instances, len(self.components_)))
        for a, b in runs(bags.offsets, max(_CELLS // phi.shape[1], 1)):
            rows = slice(int(bags.offsets[a]), int(bags.offsets[b]))
            log_lik = np.asarray(word_counts(bags.X[rows], self.words_) @ self.log_words_.T)
            if sets is not None:
                log_lik[~np.repeat(sets[a:b], bags.sizes[a:b], axis=0)] = -np.inf
            phi[rows] = infer(log_lik, bags.offsets[a : b + 1] - bags.offsets[a], float(self.alpha))
        return {"instances": phi}

    def _log_odds(self, bags):
        """Log-odds of labels, and the shares of components behind them."""
        shares = segment_mean(self._shares(bags, None)["instances"], bags.offsets)
        odds = self.slopes_ * shares[:, : self._n_real] + self.intercepts_
        return self._spread(np.clip(odds, -30.0, 30.0), self._never), shares

    def _scores(self, bags):
        odds, shares = self._log_odds(bags)
        return odds if self.intercept else self._signed(expit(odds), shares)

    def _probabilities(self, bags):
        return expit(self._log_odds(bags)[0])
