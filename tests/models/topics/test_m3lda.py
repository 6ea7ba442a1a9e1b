"""M3LDA against the exact posterior of tiny problems by enumeration, and tables counted anew."""

import itertools

import numpy as np
import pytest
from scipy import sparse
from scipy.special import gammaln

import bagwise
from bagwise import Bags, MultiViewBags
from bagwise.datasets import make_mimlmix_like
from bagwise.metrics import average_precision
from bagwise.models import M3LDA
from bagwise.models.topics.kernels import Answer
from bagwise.models.topics.m3lda import Sampler, answer, lay_out, train

ETA, BETA = 0.8, 0.5


def tiny():
    """Two bags of two and three instances, two views of three and two words."""
    words = np.array([[2.0, 0, 1], [0, 1, 0], [0, 0, 1]])
    tags = np.array([[1.0, 0], [0, 1.0]])
    counts = {"words": sparse.csr_array(words), "tags": sparse.csr_array(tags)}
    offsets = {"words": np.array([0, 1, 3]), "tags": np.array([0, 1, 2])}
    sets = np.array([[1, 1, 0], [0, 1, 1]], dtype=np.int8)
    return counts, offsets, sets


def joint(counts, offsets, z):
    """log p(words, labels) of all instances, words of labels and shares of bags integrated out; eq. by eq."""
    value = 0.0
    for b in range(2):
        labels = [l for v in counts for l in z[v][offsets[v][b] : offsets[v][b + 1]]]
        n = np.bincount(labels, minlength=3)
        value += gammaln(n + ETA).sum()
    for v, X in counts.items():
        X = X.toarray()
        for label in range(3):
            c = X[np.array(z[v]) == label].sum(axis=0)
            value += gammaln(c + BETA).sum() - gammaln((c + BETA).sum())
    return value


def exact_shares(counts, offsets, sets):
    """Posterior probability of every label of every instance, by going through all of them."""
    where = [(v, i) for v in counts for i in range(counts[v].shape[0])]
    choices = []
    for v, i in where:
        b = int(np.searchsorted(offsets[v], i, side="right")) - 1
        choices.append(np.flatnonzero(sets[b]))
    weights, shares = [], []
    for labels in itertools.product(*choices):
        z = {v: [] for v in counts}
        for (v, _), label in zip(where, labels):
            z[v].append(label)
        weights.append(joint(counts, offsets, z))
        shares.append(np.eye(3)[list(labels)])
    weights = np.exp(np.array(weights) - max(weights))
    return np.einsum("k,kil->il", weights / weights.sum(), np.array(shares))


def test_training_draws_from_the_posterior():
    counts, offsets, sets = tiny()
    layout = lay_out(counts, offsets)
    sampler = Sampler(layout, sets, [3, 2], ETA, BETA, np.random.RandomState(0))
    seen = np.zeros((5, 3))
    n = 40_000
    per_bag = np.diff(layout.rows.start)
    for _ in range(n):
        sampler.sweep()
        seen[np.arange(5), sampler.sets.labels[np.repeat(sampler.sets.start[:-1], per_bag) + sampler.z]] += 1
    found = np.concatenate([seen[layout.places[v]] for v in counts]) / n
    np.testing.assert_allclose(found, exact_shares(counts, offsets, sets), atol=0.015)


def test_tables_are_conserved():
    data = make_mimlmix_like("imageclef", 30)
    counts = {v: sparse.csr_array(bags.X, dtype=float) for v, bags in data.bags.views.items()}
    layout = lay_out(counts, {v: bags.offsets for v, bags in data.bags.views.items()})
    n_words = [X.shape[1] for X in counts.values()]
    sampler = Sampler(layout, data.Y.astype(np.int8), n_words, 1.0, 0.1, np.random.RandomState(0))
    for _ in range(3):
        sampler.sweep()
        fresh = sampler._count(data.Y.shape[1], 2, sum(n_words))
        for ours, anew in zip(sampler.tables, fresh):
            np.testing.assert_allclose(ours, anew, atol=1e-9)
        assert sampler.tables.members.sum() == sum(X.shape[0] for X in counts.values())


def test_one_label_per_bag_leaves_relative_frequencies():
    counts, offsets, _ = tiny()
    sets = np.array([[1, 0, 0], [0, 0, 1]], dtype=np.int8)
    sampler = Sampler(lay_out(counts, offsets), sets, [3, 2], ETA, BETA, np.random.RandomState(0))
    words = train(sampler, 2, 3)
    np.testing.assert_array_equal(words[:3, 0], [2, 0, 1])
    np.testing.assert_array_equal(words[:3, 2], [0, 1, 1])
    np.testing.assert_array_equal(words[3:, [0, 2]], np.eye(2))
    assert not words[:, 1].any()


def exact_answer(P, views, topics, weights, alpha, eta):
    """Stationary distribution of the sampler of prediction: its chain over labels and topics, to a power."""
    n, L = P.shape
    K = topics.shape[0]
    states = list(
        itertools.product(itertools.product(range(L), repeat=n), itertools.product(range(K), repeat=n))
    )
    number = {state: s for s, state in enumerate(states)}
    size = np.bincount(views, minlength=2)
    present = sum(weights[v] for v in range(2) if size[v])

    def conditional(i, z, base):
        prior = np.array(base)
        for j in range(n):
            if j != i:
                prior[z[j]] += weights[views[j]] / present / size[views[j]]
        p = prior * P[i]
        return p / p.sum()

    start = np.full(len(states), 1.0 / len(states))
    means = None
    for _ in range(20):
        means, now = np.zeros((n, L)), {}
        for s, chance in enumerate(start):
            if chance > 0:
                z, t = states[s]
                of = np.bincount(t, minlength=K)
                base = eta * ((of + alpha) / (n + K * alpha)) @ topics
                now[(z, t, tuple(base))] = now.get((z, t, tuple(base)), 0.0) + chance
        for i in range(n):
            new = {}
            for (z, t, base), chance in now.items():
                p = conditional(i, z, base)
                means[i] += chance * p
                for l in range(L):
                    z2 = (*z[:i], l, *z[i + 1 :])
                    of = np.bincount([t[j] for j in range(n) if j != i], minlength=K)
                    q = (of + alpha) * topics[:, l]
                    for k in range(K):
                        key = (z2, (*t[:i], k, *t[i + 1 :]), base)
                        new[key] = new.get(key, 0.0) + chance * p[l] * q[k] / q.sum()
            now = new
        start = np.zeros(len(states))
        for (z, t, _), chance in now.items():
            start[number[z, t]] += chance
    return means


def test_prediction_draws_from_its_chain():
    rng = np.random.default_rng(0)
    counts = {"a": sparse.csr_array(np.eye(3)[:2]), "b": sparse.csr_array(np.eye(3)[2:])}
    layout = lay_out(counts, {"a": np.array([0, 2]), "b": np.array([0, 1])})
    P = rng.uniform(0.1, 1.0, (3, 2))
    topics = np.array([[0.9, 0.1], [0.2, 0.8]])
    weights = np.array([0.7, 0.3])
    known = Answer(topics.T.copy(), topics.sum(axis=0), weights, 0.3, 0.5, 100, 60_000)
    found = answer(layout, P, known, seed=3)
    expected = exact_answer(P, layout.rows.views, topics, weights, 0.3, 0.5)
    np.testing.assert_allclose(found, expected, atol=0.01)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)


# ---------------------------------------------------------------------- the estimator


def test_two_views_some_missing(tmp_path):
    data = make_mimlmix_like("imageclef", 300, missing=0.3, noise={"visual": 0.5})
    model = M3LDA(5, sets="top", burn_in=10, n_sweeps=20, random_state=0).fit(data.bags[:240], data.Y[:240])
    test, Y = data.bags[240:], data.Y[240:]
    S = model.decision_function(test)
    chance = data.Y[:240].mean(axis=0)
    assert average_precision(Y, S) > average_precision(Y, np.tile(chance, (len(Y), 1))) + 0.1
    assert (model.predict(test).sum(axis=1) <= model.n_top_).all()
    F = model.instance_scores(test)
    assert {v: len(f) for v, f in F.items()} == {v: b.n_instances for v, b in test.views.items()}
    labels = model.annotate(test, Y)
    for v, found in labels.items():
        assert Y[test[v].index, found].all()
    bagwise.save(model, tmp_path / "model.skops")
    np.testing.assert_array_equal(bagwise.load(tmp_path / "model.skops").decision_function(test), S)


def test_equal_instances_get_equal_answers_in_any_order():
    rng = np.random.default_rng(0)
    X = np.eye(12)[rng.integers(0, 12, 90)]
    bags = Bags(X, np.arange(0, 91, 6))
    Y = np.eye(3, dtype=int)[np.arange(15) % 3]
    Y[:, 1] |= rng.integers(0, 2, 15)
    model = M3LDA(2, burn_in=2, n_sweeps=3, random_state=0).fit(bags, Y)
    F = model.instance_scores(bags)
    for b in range(15):
        for i, j in itertools.combinations(range(6 * b, 6 * b + 6), 2):
            if (X[i] == X[j]).all():
                np.testing.assert_allclose(F[i], F[j], atol=1e-12)
    order = np.concatenate([6 * b + rng.permutation(6) for b in range(15)])
    np.testing.assert_allclose(model.instance_scores(Bags(X[order], bags.offsets)), F[order], atol=1e-12)


def test_a_bag_without_instances_gets_the_prior():
    views = {"a": Bags(np.eye(20)[:4], [0, 2, 3, 4]), "b": Bags(np.eye(20)[:3], [0, 1, 2, 3])}
    Y = np.array([[1, 0], [0, 1], [1, 0]])
    model = M3LDA(1, sets="top", burn_in=1, n_sweeps=2, random_state=0).fit(MultiViewBags(views), Y)
    nothing = MultiViewBags({"a": Bags(np.empty((0, 20)), [0, 0]), "b": Bags(np.empty((0, 20)), [0, 0])})
    assert model.predict(nothing).tolist() == [[1, 0]]  # the more frequent label


def test_weights_of_views_must_weigh():
    bags = MultiViewBags({"a": Bags(np.eye(4), [0, 2, 4]), "b": Bags(np.eye(4), [0, 2, 4])})
    with pytest.raises(ValueError, match="view_weights"):
        M3LDA(1, view_weights=[0.0, 0.0]).fit(bags, [[1, 0], [0, 1]])
    with pytest.raises(ValueError, match="view_weights names the views"):
        M3LDA(1, view_weights={"c": 1.0}).fit(bags, [[1, 0], [0, 1]])


def test_threshold_has_the_fewest_errors_in_training():
    data = make_mimlmix_like("imageclef", 120)
    Y = np.column_stack([data.Y, np.zeros(120, dtype=int)])  # a label that never occurs
    model = M3LDA(3, burn_in=5, n_sweeps=10, random_state=0).fit(data.bags, Y)
    shares = model.decision_function(data.bags) + model.threshold_
    errors = [((shares > t) != Y).sum() for t in [*np.linspace(0.0, 0.5, 101), model.threshold_]]
    assert errors[-1] == min(errors)
    assert not model.predict(data.bags)[:, -1].any()


@pytest.mark.parametrize("missing", [False, True])
def test_a_fitted_model_of_two_views_answers_as_its_chain(missing):
    """Weights of views and topics, smoothing and priors as parameters say; a view that a bag lacks, too."""
    rng = np.random.default_rng(0)
    Y = np.eye(2, dtype=int)[rng.integers(0, 2, 30)]
    Y[::3] = 1
    views = {}
    for name, n_words in (("a", 4), ("b", 3)):
        offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 3, 30))])
        counts = (
            rng.poisson(0.6, (offsets[-1], n_words)) + np.eye(n_words)[rng.integers(0, n_words, offsets[-1])]
        )
        views[name] = Bags(counts, offsets)
    weights = {
        "view_weights": {"a": 0.7, "b": 0.3},
        "topic_weight": 0.5,
        "smoothing": 0.4,
        "alpha_topic": 0.3,
    }
    sweeps = {"burn_in": 2, "n_sweeps": 5, "predict_burn_in": 50, "predict_sweeps": 20000}
    model = M3LDA(2, words="counts", **weights, **sweeps, sets="top", random_state=0)
    model.fit(MultiViewBags(views), Y)
    new = {
        "a": Bags(np.array([[1.0, 0, 0, 1], [0, 2, 0, 0]]), [0, 2]),
        "b": Bags(np.empty((0, 3)), [0, 0]) if missing else Bags(np.array([[0.0, 1, 1]]), [0, 1]),
    }
    F, S = model.instance_scores(MultiViewBags(new)), model.decision_function(MultiViewBags(new))[0]
    P, of_view = [], []
    for number, (name, bags) in enumerate(new.items()):
        words = model.word_counts_[name] + 0.4
        words /= words.sum(axis=0)
        P += [np.exp(x @ np.log(words)) for x in bags.X]
        of_view += [number] * bags.n_instances
    exact = exact_answer(np.array(P), np.array(of_view), model.label_topics_, np.array([0.7, 0.3]), 0.3, 0.5)
    np.testing.assert_allclose(np.concatenate([F["a"], F["b"]]), exact, atol=0.015)
    share = F["a"].mean(axis=0) if missing else 0.7 * F["a"].mean(axis=0) + 0.3 * F["b"].mean(axis=0)
    np.testing.assert_allclose(np.where(S < 0, -1 / np.where(S < 0, S, 1), S), share, atol=1e-9)
