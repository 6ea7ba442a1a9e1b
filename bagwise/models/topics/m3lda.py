"""M3LDA: labels from topics, instances of several views from labels, drawn by Gibbs sampling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from bagwise.bags import runs
from bagwise.base import Traits
from bagwise.base.parameters import Choice, Number, PerView, Seed, Whole
from bagwise.compute.aligned import frozen
from bagwise.compute.calibration import best_offset
from bagwise.compute.segment import segment_sum
from bagwise.compute.threads import cores, in_threads
from bagwise.models.mimlmix.fit_em import as_views
from bagwise.models.mimlmix.kernels_topics import choose_n_topics, fit_topics, label_distributions
from bagwise.models.mimlmix.tune import by_view
from bagwise.models.topics import kernels
from bagwise.models.topics.base import TopicClassifier, learn_words, word_counts
from bagwise.models.topics.kernels import Answer
from bagwise.utils.arrays import check_memory
from bagwise.utils.progress import track

_CELLS = 1 << 22  # likelihoods of instances held at a time in prediction
_FOR_THRESHOLD = 1000  # training bags that decide on the threshold


class M3LDA(TopicClassifier):
    r"""Draw labels from topics and words of instances from labels, in several views, by Gibbs sampling.

    Multi-modal multi-instance multi-label latent Dirichlet allocation.

    Labels of a bag come from topics; every instance of every view has one label, and words drawn from it. For
    views of discrete words; other instances become words by k-means. `MIMLMix` is the later model of the same
    authors, which takes continuous views as they are and needs no sampling.

    Parameters
    ----------
    n_topics : int or "auto", default="auto"
        Number of topics of labels; "auto" is the one that best completes label sets of held-out bags.
    view_weights : float, sequence or dict of view to float, default=1.0
        Weight of each view in the prior of labels at prediction; only their shares count.
    topic_weight : float, default=1.0
        Weight of the topics in that prior, beside 1 for all views together.
    eta : float, default=1.0
        Pseudo-instances of every label of a training bag.
    smoothing : float, default=0.1
        Pseudo-count of every word of every label.
    n_words : int or "auto", default="auto"
        Number of words of a codebook; "auto" is a tenth of the view's training instances, but at least 10 and
        at most 200. Not used for counts.
    words : {"auto", "counts", "codebook"}, sequence or dict of view to kind, default="auto"
        What instances are: counts of words (or weights that are not negative), or anything, of which k-means
        makes words. "auto" takes them for counts if they are not negative and mostly zeros.
    sets : {"threshold", "top"}, default="threshold"
        How label sets are cut: all labels with a share above a threshold, the one with the fewest errors on
        (at most 1,000) training bags predicted as if their labels were not known; or the best L-bar labels
        that beat the background, L-bar being the rounded mean number of labels of training bags.
    burn_in, n_sweeps : int, default=50, 100
        Sweeps of the sampler in training that are thrown away and that are averaged.
    predict_burn_in, predict_sweeps : int, default=20, 50
        The same for prediction.
    alpha_topic, topic_smoothing : float, default=0.1, 0.01
        Dirichlet parameters of a bag's topics and of a topic's labels.
    random_state : int, RandomState instance or None, default=None
        Seed of codebooks, topics and samplers.

    Attributes
    ----------
    components_ : ndarray
        Labels that the model knows: those with a training bag; ``n_labels`` stands for the background.
    label_topics_ : ndarray of shape (n_topics, n_components)
        Distribution over labels of every topic.
    word_counts_ : dict of str to ndarray of shape (n_words, n_components)
        Mean number of every word under every label, for every view.
    words_ : dict of str to dict
        How the instances of every view become words.
    threshold_ : float
        What shares are compared with; 0 with ``sets="top"``.
    n_top_ : int
        L-bar.

    Notes
    -----
    Training draws the label of instance i, with words x, of bag b from the labels of the bag,

    .. math:: p(l) \propto (n_{bl} + \eta) \frac{\Gamma(\sum_w c_{lw})}{\Gamma(\sum_w c_{lw} + |x|)}
        \prod_w \frac{\Gamma(c_{lw} + x_w)}{\Gamma(c_{lw})},

    where :math:`n_{bl}` other instances of the bag have the label l and c are the words under it in the
    instance's view, ``smoothing`` included. Words of a label are the mean over the sweeps after
    ``burn_in``. Topics are learned from the label sets alone.

    Prediction takes all labels into account: with :math:`s_{vl}` the share of label l among the instances of
    view v, weights :math:`\lambda_v` of the views that the bag has, and :math:`\theta'` the topics of the
    labels drawn,

    .. math:: p(l) \propto \Big(\sum_v \lambda_v s_{vl} + \eta' \sum_k \theta'_k \beta'_{kl}\Big)
        \prod_w \beta_{vlw}^{x_w} .

    The score of an instance is the mean of these distributions over the kept sweeps (with a single label less
    one half), that of a bag the mean of its instances by the weights of their views. `decision_function` is
    that share less ``threshold_``; with ``sets="top"`` it is the share for labels in the predicted set and
    minus one over it for the others. :math:`\eta'` is ``topic_weight``, :math:`\beta'` ``label_topics_``.

    Random numbers of a bag follow from its words, and its instances are drawn in an order that their words
    decide: predictions do not depend on the order of anything.

    A training sweep takes :math:`O(nnz\, |Y_b|)` steps for nnz counts, one of prediction :math:`O(N (L + K))`
    for N instances, L labels and K topics.

    *Differences from* [1]_, which was not at hand in detail. (1) Topics of labels are learned by collapsed
    variational Bayes, once. (2) Words are averaged over sweeps, and so are whole distributions instead of
    draws. (3) Training bags without labels teach one more label, the background. (4) ``sets``.

    References
    ----------
    .. [1] C.-T. Nguyen, D.-C. Zhan, Z.-H. Zhou: Multi-modal image annotation with multi-instance multi-label
       LDA. IJCAI 2013.

    Examples
    --------
    >>> from bagwise.datasets import make_mimlmix_like
    >>> data = make_mimlmix_like("imageclef", 120)
    >>> model = M3LDA(5, burn_in=5, n_sweeps=10, random_state=0).fit(data.bags[:100], data.Y[:100])
    >>> model.predict(data.bags[100:]).shape
    (20, 78)
    >>> sorted(model.instance_scores(data.bags[100:]))
    ['textual', 'visual']
    """

    traits = Traits(instances="model", views=True, empty_bags=True, label_equivariant=False)

    _parameters: ClassVar = {
        "n_topics": (Choice("auto"), Whole(1)),
        "view_weights": PerView(Number(0)),
        "topic_weight": Number(above=0),
        "eta": Number(above=0),
        "smoothing": Number(above=0),
        "n_words": (Choice("auto"), Whole(1)),
        "words": PerView(Choice("auto", "counts", "codebook")),
        "sets": Choice("threshold", "top"),
        "burn_in": Whole(0),
        "n_sweeps": Whole(1),
        "predict_burn_in": Whole(0),
        "predict_sweeps": Whole(1),
        "alpha_topic": Number(above=0),
        "topic_smoothing": Number(above=0),
        "random_state": Seed(),
    }

    def __init__(
        self,
        n_topics="auto",
        *,
        view_weights=1.0,
        topic_weight=1.0,
        eta=1.0,
        smoothing=0.1,
        n_words="auto",
        words="auto",
        sets="threshold",
        burn_in=50,
        n_sweeps=100,
        predict_burn_in=20,
        predict_sweeps=50,
        alpha_topic=0.1,
        topic_smoothing=0.01,
        random_state=None,
    ):
        self.n_topics = n_topics
        self.view_weights = view_weights
        self.topic_weight = topic_weight
        self.eta = eta
        self.smoothing = smoothing
        self.n_words = n_words
        self.words = words
        self.sets = sets
        self.burn_in = burn_in
        self.n_sweeps = n_sweeps
        self.predict_burn_in = predict_burn_in
        self.predict_sweeps = predict_sweeps
        self.alpha_topic = alpha_topic
        self.topic_smoothing = topic_smoothing
        self.random_state = random_state

    @classmethod
    def _test_params(cls):
        return {"n_topics": 2, "burn_in": 5, "n_sweeps": 10, "random_state": 0}

    def _fit(self, bags, Y):
        rng = check_random_state(self.random_state)
        views = as_views(bags)
        sets = self._set_up(Y)
        given = by_view("view_weights", self.view_weights, list(views), silent=1.0)
        weights = np.array([self.view_weights if given is None else given[v] for v in views], dtype=float)
        if not weights.any():
            raise ValueError(f"view_weights of M3LDA must not all be 0, got {self.view_weights!r}")
        self._weights = weights / weights.sum()
        kinds = by_view("words", self.words, list(views))
        self.words_ = {
            v: learn_words(v, view, self.words if kinds is None else kinds[v], self.n_words, rng)
            for v, view in views.items()
        }
        n_words = [int(words["n_words"]) for words in self.words_.values()]
        what = f"counts of {sum(n_words):,} words for each of {sets.shape[1]:,} labels"
        check_memory(24.0 * sum(n_words) * sets.shape[1], what, "take fewer words")
        n_topics = self.n_topics
        if n_topics == "auto":
            n_topics = choose_n_topics(sets, rng, alpha=self.alpha_topic, smoothing=self.topic_smoothing)
        topics = fit_topics(sets, int(n_topics), rng, alpha=self.alpha_topic)
        self.label_topics_ = label_distributions(topics, self.topic_smoothing)
        self._topic_share = (topics.sum(axis=1) + 1e-12) / (topics.sum() + 1e-12 * len(topics))
        layout = self._layout(views)
        sampler = Sampler(layout, sets, n_words, self.eta, self.smoothing, rng)
        counts = train(sampler, self.burn_in, self.n_sweeps)
        self.word_counts_ = dict(zip(views, np.split(counts, np.cumsum(n_words)[:-1])))
        self._seed = int(rng.randint(2**31 - 1))
        self.threshold_ = 0.0
        if self.sets == "threshold":
            some = np.sort(rng.permutation(len(Y))[:_FOR_THRESHOLD])
            self.threshold_ = best_offset(self._spread(self._bag_shares(bags[some])), Y[some])

    def _layout(self, views: dict[str, Any]):
        counts = {v: word_counts(view.X, self.words_[v]) for v, view in views.items()}
        return lay_out(counts, {v: view.offsets for v, view in views.items()})

    def _shares(self, bags, sets):
        views = as_views(bags)
        C = len(self.components_)
        result = {v: np.zeros((view.n_instances, C)) for v, view in views.items()}
        sizes = np.sum([view.sizes for view in views.values()], axis=0)
        known = self._answer()
        for a, b in runs(np.concatenate([[0], np.cumsum(sizes)]), max(_CELLS // C, 1)):
            part = {v: view[a:b] for v, view in views.items()}
            layout = self._layout(part)
            P = np.empty((len(layout.keys), C))
            for v, view in part.items():
                smoothed = self.word_counts_[v] + self.smoothing
                log_beta = np.log(smoothed) - np.log(smoothed.sum(axis=0))
                logs = np.asarray(word_counts(view.X, self.words_[v]) @ log_beta)
                if sets is not None:
                    logs[~sets[a:b][view.index]] = -np.inf
                top = logs.max(axis=1, keepdims=True, initial=-np.inf)
                P[layout.places[v]] = np.exp(logs - np.where(np.isfinite(top), top, 0.0))
            found = answer(layout, P, known, self._seed)
            for v, view in views.items():
                result[v][view.offsets[a] : view.offsets[b]] = found[layout.places[v]]
        return result

    def _answer(self):
        topics = np.ascontiguousarray(self.label_topics_.T)
        return Answer(
            frozen(topics),
            frozen(topics.sum(axis=1)),
            frozen(self._weights),
            float(self.alpha_topic),
            float(self.topic_weight),
            int(self.predict_burn_in),
            int(self.predict_sweeps),
        )

    def _bag_shares(self, bags):
        """Shares of components in every bag."""
        views = as_views(bags)
        phi = self._shares(bags, None)
        total, weight = np.zeros((len(bags), len(self.components_))), np.zeros(len(bags))
        for w, (v, view) in zip(self._weights, views.items()):
            present = np.where(view.sizes > 0, w, 0.0)
            weight += present
            total += segment_sum(phi[v], view.offsets) * (present / np.maximum(view.sizes, 1))[:, None]
        prior = self._topic_share @ self.label_topics_  # of a bag of which nothing is known
        return np.where(weight[:, None] > 0, total / np.maximum(weight, 1e-300)[:, None], prior)

    def _scores(self, bags):
        shares = self._bag_shares(bags)
        if self.sets == "top":
            return self._signed(self._spread(shares), shares)
        return self._spread(shares, fill=-1.0) - self.threshold_  # never a label without a training bag


# ----------------------------------------------------------------------
# Gibbs sampling of M3LDA: what goes into the compiled loops, and what comes out of them


_WORTH_A_THREAD = 1 << 16  # likelihoods of a range below which a second thread costs more than it saves


class Layout(NamedTuple):
    """Instances of all views bag by bag, and where each came from."""

    rows: kernels.Rows
    places: dict[str, np.ndarray]  # row of every instance of a view
    same: np.ndarray  # equal instances of a bag and view have the same number
    keys: np.ndarray  # a number per row that its words decide


def lay_out(counts: Mapping[str, Any], offsets: Mapping[str, np.ndarray]) -> Layout:
    """Bring the instances of all views into one order, in which those of a bag follow their words.

    The order in which they came then does not matter, although labels are drawn one after the other.
    """
    n_bags = len(next(iter(offsets.values()))) - 1
    bag, view, key, parts, before = [], [], [], [], 0
    width = sum(X.shape[1] for X in counts.values())
    marks = np.random.RandomState(0).random_sample(width)  # any numbers will do, as long as they stay
    for v, (name, X) in enumerate(counts.items()):
        bag.append(np.repeat(np.arange(n_bags), np.diff(offsets[name])))
        view.append(np.full(X.shape[0], v))
        key.append(np.asarray(X @ marks[before : before + X.shape[1]]))
        shape = (X.shape[0], width)
        parts.append(sparse.csr_array((X.data, X.indices.astype(np.int64) + before, X.indptr), shape=shape))
        before += X.shape[1]
    bags, views, keys = np.concatenate(bag), np.concatenate(view), np.concatenate(key)
    order = np.lexsort((keys, views, bags))
    X = sparse.csr_array(sparse.vstack(parts, format="csr")[order])
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(bags[order]) > 0) | (np.diff(views[order]) > 0) | (np.diff(keys[order]) > 0)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    ends = np.cumsum([X.shape[0] for X in counts.values()])
    places = dict(zip(counts, np.split(place, ends[:-1])))
    start = np.concatenate([[0], np.cumsum(np.bincount(bags, minlength=n_bags))])
    start, seen, indptr, indices = (
        frozen(a.astype(np.int64)) for a in (start, views[order], X.indptr, X.indices)
    )
    rows = kernels.Rows(start, seen, indptr, indices, frozen(X.data.astype(np.float64)))
    return Layout(rows, places, np.cumsum(new) - 1, keys[order])


class Sampler:
    """Labels of training instances, drawn within the sets of their bags, and the tables that count them."""

    def __init__(
        self, layout: Layout, sets: np.ndarray, n_words: list[int], eta: float, beta: float, rng: Any
    ) -> None:
        self.rows = layout.rows
        n_labels, n_views = sets.shape[1], len(n_words)
        sizes = sets.sum(axis=1)
        start = np.concatenate([[0], np.cumsum(sizes)])
        self.sets = kernels.Sets(frozen(start.astype(np.int64)), frozen(np.nonzero(sets)[1].astype(np.int64)))
        word = np.full(n_views, float(beta))
        self.priors = kernels.Priors(float(eta), frozen(word), frozen(word * np.array(n_words, dtype=float)))
        self.state = np.array([rng.randint(2**31 - 1)], dtype=np.uint64)
        self.room = np.empty(int(sizes.max(initial=1)))
        per_bag = np.diff(self.rows.start)
        choices = np.repeat(sizes, per_bag)
        self.z = (rng.random_sample(len(choices)) * choices).astype(np.int64)
        self.tables = self._count(n_labels, n_views, sum(n_words))

    def _count(self, n_labels: int, n_views: int, n_words: int) -> kernels.Tables:
        """Tables of the present labels, from nothing."""
        at = np.repeat(self.sets.start[:-1], np.diff(self.rows.start)) + self.z
        label = self.sets.labels[at]
        members = np.bincount(at, minlength=len(self.sets.labels)).astype(np.float64)
        lengths = np.repeat(label, np.diff(self.rows.indptr))
        cells = self.rows.indices * n_labels + lengths
        words = np.bincount(cells, self.rows.data, minlength=n_words * n_labels).reshape(n_words, n_labels)
        views = np.repeat(self.rows.views, np.diff(self.rows.indptr))
        totals = np.bincount(views * n_labels + lengths, self.rows.data, minlength=n_views * n_labels)
        return kernels.Tables(members, words, totals.reshape(n_views, n_labels))

    def sweep(self) -> None:
        """Draw the labels of all instances once."""
        kernels.sweep(self.rows, self.sets, self.tables, self.priors, self.z, self.state, self.room)


def train(sampler: Sampler, burn_in: int, n_sweeps: int) -> np.ndarray:
    """Mean number of every word under every label (n_words, n_labels), over the sweeps after the first."""
    total = np.zeros_like(sampler.tables.words)
    if (np.diff(sampler.sets.start) < 2).all():  # nothing to draw
        return total + sampler.tables.words
    for s in track(range(burn_in + n_sweeps), "Gibbs sweeps"):
        sampler.sweep()
        if s >= burn_in:
            total += sampler.tables.words
    return total / n_sweeps


def answer(layout: Layout, P: np.ndarray, known: kernels.Answer, seed: int) -> np.ndarray:
    """Distribution over labels of the rows of a layout, from their likelihoods ``P`` under labels.

    Every bag has random numbers of its own, that follow from its words: neither the bags around it nor the
    number of threads matter. Equal instances of a bag get the mean of their answers.
    """
    start, n_labels = layout.rows.start, P.shape[1]
    n_views, n_topics = len(known.weights), known.topics.shape[1]
    largest = int(np.diff(start).max(initial=1))
    bits = segment_sum(layout.keys, start).view(np.uint64)
    seeds = np.ascontiguousarray(bits + np.uint64(seed))
    out = np.zeros_like(P)
    view, likelihoods = layout.rows.views, frozen(P)

    def some(first: int, last: int) -> None:
        room = kernels.Room(
            np.zeros(largest, np.int64),
            np.zeros(largest, np.int64),
            np.zeros((n_views, n_labels)),
            np.zeros(n_topics),
            np.zeros(n_labels),
            np.zeros(max(n_labels, n_topics)),
            np.zeros(n_views),
        )
        kernels.answer_bags(first, last, start, view, likelihoods, known, seeds, room, out)

    smallest = max(1, _WORTH_A_THREAD // n_labels)
    in_threads(some, len(start) - 1, cores(), work=start, smallest=smallest)
    if not len(out):
        return out
    groups = np.concatenate([[0], np.cumsum(np.bincount(layout.same))]).astype(np.int64)
    return (segment_sum(out, groups) / np.diff(groups)[:, None])[layout.same]
