"""MIMLSVM, MIMLkNN, MIMLRBF and MIMLNN against plain loops, and the oracles of their definitions."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import MinMaxScaler, Normalizer
from sklearn.svm import SVC

import bagwise
from bagwise import Bags
from bagwise.checks import sample_bags
from bagwise.compute.memo import remembered, shared_work
from bagwise.datasets import make_miml
from bagwise.metrics import get_scorer
from bagwise.model_selection import MultilabelKFold
from bagwise.models import MIMLKNN, MIMLNN, MIMLRBF, MIMLSVM
from bagwise.models.distance import base
from bagwise.models.distance.base import k_medoids, n_medoids, nearest

FAMILY = [MIMLSVM, MIMLKNN, MIMLRBF, MIMLNN]


def seeded(cls, **parameters):
    if "random_state" in cls().get_params():
        parameters.setdefault("random_state", 0)
    return cls(**parameters)


def distance(A, C, kind):
    D = np.sqrt(((A[:, None, :] - C[None, :, :]) ** 2).sum(axis=2))
    r, c = D.min(axis=1), D.min(axis=0)
    return max(r.max(), c.max()) if kind == "max" else (r.sum() + c.sum()) / (len(A) + len(C))


def distances(bags, others, kind):
    return np.array([[distance(A, C, kind) for C in others] for A in bags])


# ---------------------------------------------------------------------- k-medoids


def plain_medoids(D, k, rng):
    """The same start, then loops."""
    n = len(D)
    clusters = rng.randint(k, size=n)
    clusters[rng.choice(n, k, replace=False)] = np.arange(k)

    def centre(members):
        sums = [sum(D[i, j] for j in members) for i in members]
        return members[sums.index(min(sums))]

    medoids = [centre([i for i in range(n) if clusters[i] == c]) for c in range(k)]
    for _ in range(100):
        assigned = []
        for i in range(n):
            if i in medoids:
                assigned.append(medoids.index(i))
            else:
                to = [D[i, m] for m in medoids]
                assigned.append(to.index(min(to)))
        new = [centre([i for i in range(n) if assigned[i] == c]) for c in range(k)]
        done = set(new) == set(medoids)
        medoids = new
        if done:
            break
    return sorted(medoids)


@pytest.mark.parametrize("seed", range(12))
def test_k_medoids_equals_loops(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 25))
    k = int(rng.integers(1, n + 1))
    # whole numbers make ties, and duplicated points
    x = rng.integers(0, 12, size=(n, 1 + seed % 2)).astype(float)
    D = np.abs(x[:, None, :] - x[None, :, :]).sum(axis=2)
    got, n_iter = k_medoids(D, k, np.random.RandomState(seed))
    assert got.tolist() == plain_medoids(D, k, np.random.RandomState(seed))
    assert 1 <= n_iter <= 100


def test_k_medoids_ends():
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    D = np.abs(x[:, None] - x)
    medoids, _ = k_medoids(D, 30, np.random.RandomState(1))
    assert medoids.tolist() == list(range(30))
    assert k_medoids(D, 1, np.random.RandomState(1))[0] == [D.sum(axis=1).argmin()]
    same, _ = k_medoids(np.zeros((6, 6)), 4, np.random.RandomState(1))  # all bags equal: still four of them
    assert len(set(same.tolist())) == 4
    assert k_medoids(D, 5, np.random.RandomState(2), max_iter=0)[1] == 0


def test_number_of_medoids():
    assert [n_medoids(r, 100) for r in (0.07, 0.29, 0.57, 1.0)] == [7, 29, 57, 100]
    assert [n_medoids(0.1, n, up=True) for n in (1, 10, 11, 30)] == [1, 1, 2, 3]


# ---------------------------------------------------------------------- scaling


@pytest.mark.parametrize("cls", FAMILY)
@pytest.mark.parametrize("is_sparse", [False, True])
def test_scaling_inside_equals_scaling_before(cls, is_sparse):
    bags, Y = sample_bags()
    X = np.where(np.abs(bags.X) > 0.4, bags.X, 0.0) * [1.0, 10.0, 1e-3, 5.0, 2.0]
    X[:, 3] = 7.0  # constant in training, not later
    train, test = slice(0, 30), slice(30, 40)
    cut = bags.offsets[30]
    X[cut:, 3] = np.arange(len(X) - cut)
    before = MinMaxScaler().fit(X[:cut]).transform(X)
    before[:, 3] = 0.5
    given = bags.with_X(sparse.csr_array(X) if is_sparse else X)
    for scaling, scaled in (("minmax", before), ("l2", Normalizer().transform(X)), ("none", X)):
        inside = seeded(cls, scaling=scaling).fit(given[train], Y[train])
        outside = seeded(cls, scaling="none").fit(bags.with_X(scaled)[train], Y[train])
        np.testing.assert_allclose(
            inside.decision_function(given[test]),
            outside.decision_function(bags.with_X(scaled)[test]),
            rtol=1e-5,
            atol=1e-5,  # the two round differently, and a matrix is inverted
        )


# ---------------------------------------------------------------------- MIMLSVM


def test_svm_equals_one_svc_per_label():
    bags, Y = sample_bags(60)
    train, test = bags[:40], bags[40:]
    for kernel, gamma in (("rbf", 0.2), ("rbf", "scale"), ("linear", 0.2)):
        model = MIMLSVM(0.3, kernel=kernel, gamma=gamma, C=2.0, scaling="none", random_state=0)
        S = model.fit(train, Y[:40]).decision_function(test)
        D = distances(list(train), list(train), "max")
        medoids, _ = k_medoids(D, 12, np.random.RandomState(0))
        np.testing.assert_array_equal(model.medoids_, medoids)
        phi = distances(list(test), [train[m] for m in medoids], "max")
        for label in range(3):
            svm = SVC(kernel=kernel, gamma=gamma, C=2.0).fit(D[:, medoids], Y[:40, label])
            np.testing.assert_allclose(S[:, label], svm.decision_function(phi), rtol=1e-3, atol=2e-3)


def test_svm_with_all_bags_as_medoids_sees_the_distance_matrix():
    bags, Y = sample_bags(25)
    model = MIMLSVM(1.0, scaling="none", random_state=0).fit(bags, Y)
    assert model.medoids_.tolist() == list(range(25))
    D = distances(list(bags), list(bags), "max")
    np.testing.assert_allclose(model.support_features_, D[model.support_], rtol=1e-12)


def test_duplicating_an_instance_changes_nothing_for_maximum_distances():
    bags, Y = sample_bags(30)
    doubled = Bags.from_list([np.vstack([A, A[:1], A[:1]]) for A in bags])
    for cls in (MIMLSVM, MIMLNN):
        first = seeded(cls).fit(bags, Y).decision_function(bags)
        second = seeded(cls).fit(doubled, Y).decision_function(doubled)
        np.testing.assert_array_equal(second, first)


def test_t_criterion():
    bags, Y = sample_bags(60)
    Y = np.where(np.random.default_rng(0).random(Y.shape) < 0.6, Y, 0)  # rare labels: many scores below 0
    model = MIMLSVM(C=10.0, random_state=0).fit(bags, Y)
    S, P = model.decision_function(bags), model.predict(bags)
    none = (S <= 0).all(axis=1)
    assert none.any() and not none.all()
    np.testing.assert_array_equal(P[~none], S[~none] > 0)
    np.testing.assert_array_equal(P[none], S[none] == S[none].max(axis=1, keepdims=True))
    strict = MIMLSVM(C=10.0, threshold_rule="zero", random_state=0).fit(bags, Y)
    np.testing.assert_array_equal(strict.predict(bags), S > 0)


def test_t_criterion_leaves_single_labels_alone():
    bags, Y = sample_bags(60)
    for y in (Y[:, 0], Y[:, :1]):
        model = MIMLSVM(random_state=0).fit(bags, y)
        np.testing.assert_array_equal(model.predict(bags), model.decision_function(bags) > 0)
        assert 0 < model.predict(bags).mean() < 1


# ---------------------------------------------------------------------- MIMLkNN


def plain_knn(train, Y, test, r, c, kind):
    D = distances(train, train, kind)
    n = len(train)
    near = [sorted((j for j in range(n) if j != b), key=lambda j: (D[b, j], j)) for b in range(n)]
    A = np.zeros(Y.shape)
    for b in range(n):
        for j in near[b][:r]:
            A[b] += Y[j]
        for j in range(n):
            if b in near[j][:c]:
                A[b] += Y[j]
    W = np.linalg.lstsq(A, 2.0 * Y - 1.0, rcond=None)[0]
    E = distances(test, train, kind)
    counts = np.zeros((len(test), Y.shape[1]))
    for q in range(len(test)):
        for j in sorted(range(n), key=lambda j: (E[q, j], j))[:r]:
            counts[q] += Y[j]
        for j in range(n):  # q alone is put among the neighbours of j, after those at equal distance
            if sum(D[j, i] <= E[q, j] for i in range(n) if i != j) < c:
                counts[q] += Y[j]
    return A, counts @ W


@pytest.mark.parametrize(("r", "c"), [(1, 1), (4, 6), (10, 3), (39, 39), (100, 200)])
@pytest.mark.parametrize("kind", ["average", "max"])
def test_knn_equals_loops(r, c, kind):
    bags, Y = sample_bags(60)
    train, test = list(bags[:40]), list(bags[40:])
    _, expected = plain_knn(train, Y[:40], test, r, c, kind)
    model = MIMLKNN(r, c, distance=kind, scaling="none").fit(train, Y[:40])
    np.testing.assert_allclose(model.decision_function(test), expected, rtol=1e-9, atol=1e-9)


def test_knn_worked_example():
    bags = [np.array([[0.0]]), np.array([[1.0]]), np.array([[3.0]])]
    Y = np.eye(3, dtype=int)
    A = np.array([[0, 2, 0], [2, 0, 1], [0, 1, 0]], dtype=float)
    np.testing.assert_array_equal(plain_knn(bags, Y, bags, 1, 1, "average")[0], A)
    model = MIMLKNN(1, 1).fit(bags, Y)
    np.testing.assert_allclose(model.coef_, np.linalg.lstsq(A, 2.0 * Y - 1.0, rcond=None)[0], atol=1e-12)
    np.testing.assert_allclose(model.citing_distance_, [1 / 3, 1 / 3, 2 / 3], rtol=1e-6)


def test_knn_takes_the_first_of_equals():
    D = np.random.default_rng(0).integers(0, 4, (50, 9)).astype(float)
    for k in (1, 3, 9):
        mask, limit = nearest(D, k)
        order = np.argsort(D, axis=1, kind="stable")[:, :k]
        expected = np.zeros(D.shape, dtype=bool)
        np.put_along_axis(expected, order, True, axis=1)
        np.testing.assert_array_equal(mask, expected)
        np.testing.assert_array_equal(limit, np.sort(D, axis=1)[:, k - 1])


def test_knn_with_a_single_label_can_say_no():
    bags, Y = sample_bags(80)
    model = MIMLKNN().fit(bags[:60], Y[:60, :1])
    assert model.coef_.shape == (2, 1)
    assert (model.predict(bags[60:]) == Y[60:, :1]).mean() > 0.75


def test_score_of_zero_is_predicted():
    # the nearest bag of q, and the only one that cites it, has no label: all counts are 0
    bags = [np.array([[v]]) for v in (0.0, 1.0, 2.0, 8.0, 9.0, 10.0)]
    Y = np.array([[1, 0], [0, 1], [1, 1], [0, 0], [0, 0], [0, 0]])
    model = MIMLKNN(1, 1).fit(bags, Y)
    query = [np.array([[9.0]])]
    S = model.decision_function(query)
    assert (S > 0).all() and (S < 1e-300).all()
    np.testing.assert_array_equal(model.predict(query), [[1, 1]])


# ---------------------------------------------------------------------- MIMLRBF


def test_rbf_equals_loops():
    bags, Y = sample_bags(60)
    train, test = list(bags[:40]), list(bags[40:])
    model = MIMLRBF(0.25, width_scale=0.8, scaling="none", random_state=3).fit(train, Y[:40])
    D = distances(train, train, "average")
    seed = np.random.RandomState(3).randint(2**31 - 1)
    medoids = []
    for label in range(3):
        own = np.flatnonzero(Y[:40, label])
        k = int(np.ceil(0.25 * len(own)))
        medoids += own[plain_medoids(D[np.ix_(own, own)], k, np.random.RandomState(seed))].tolist()
    assert model.medoids_.tolist() == medoids
    K = len(medoids)
    pairs = [D[medoids[i], medoids[j]] for i in range(K) for j in range(i + 1, K)]
    assert model.width_ == pytest.approx(0.8 * np.mean(pairs))

    def features(rows):
        E = distances(rows, [train[m] for m in medoids], "average")
        return np.column_stack([np.ones(len(rows)), np.exp(-(E**2) / (2 * model.width_**2))])

    W = np.linalg.lstsq(features(train), 2.0 * Y[:40] - 1.0, rcond=None)[0]
    np.testing.assert_allclose(model.decision_function(test), features(test) @ W, rtol=1e-6, atol=1e-6)


def test_rbf_with_all_bags_interpolates():
    bags, _ = sample_bags(30)
    Y = np.eye(3, dtype=int)[np.arange(30) % 3]
    model = MIMLRBF(1.0, scaling="none", random_state=0).fit(bags, Y)
    assert sorted(model.medoids_) == list(range(30)) and model.coef_.shape == (30, 3)
    assert (np.bincount(model.medoid_labels_) == 10).all()
    np.testing.assert_allclose(model.decision_function(bags), 2.0 * Y - 1.0, atol=1e-6)
    D = distances(list(bags), [bags[m] for m in np.unique(model.medoids_)], "average")
    Phi = model._features(D)
    np.testing.assert_allclose(Phi[model.medoids_, np.arange(30)], 1.0)
    narrow = MIMLRBF(1.0, width_scale=0.3, scaling="none", random_state=0).fit(bags, Y)
    assert narrow.width_ == pytest.approx(model.width_ / 2)
    assert (narrow._features(D) <= Phi).all() and (narrow._features(D) < Phi).any()


def test_rbf_without_pairs_of_medoids():
    bags, _ = sample_bags(20)
    rare = np.zeros((20, 2), dtype=int)
    rare[4, 0] = 1  # one medoid in all
    model = MIMLRBF(random_state=0).fit(bags, rare)
    assert model.medoids_.tolist() == [4] and model.medoid_labels_.tolist() == [0]
    scaled = [A / (bags.X.max(axis=0) - bags.X.min(axis=0)) for A in bags]
    D = distances(scaled, scaled, "average")
    assert model.width_ == pytest.approx(0.6 * D[np.triu_indices(20, 1)].mean())
    assert (model.decision_function(bags)[:, 1] == -1.0).all()
    nothing = MIMLRBF(random_state=0).fit(bags, np.zeros((20, 2), dtype=int))
    assert (nothing.decision_function(bags) == -1.0).all()


# ---------------------------------------------------------------------- MIMLNN


@pytest.mark.parametrize("alpha", [0.01, 1.0, 10.0])
def test_nn_equals_ridge(alpha):
    bags, Y = sample_bags(60)
    train, test = list(bags[:40]), list(bags[40:])
    model = MIMLNN(alpha=alpha, scaling="none", random_state=0).fit(train, Y[:40])
    D = distances(train, train, "max")
    medoids, _ = k_medoids(D, 16, np.random.RandomState(0))
    ridge = Ridge(alpha=alpha, fit_intercept=False).fit(D[:, medoids], 2.0 * Y[:40] - 1.0)
    phi = distances(test, [train[m] for m in medoids], "max")
    np.testing.assert_allclose(model.decision_function(test), ridge.predict(phi), rtol=1e-8, atol=1e-8)


def test_nn_without_penalty_is_least_squares():
    bags, Y = sample_bags(40)
    exact = MIMLNN(0.3, alpha=0.0, random_state=0).fit(bags, Y)
    nearly = MIMLNN(0.3, alpha=1e-9, random_state=0).fit(bags, Y)
    np.testing.assert_allclose(nearly.coef_, exact.coef_, rtol=1e-4, atol=1e-5)
    same = Bags.from_list([np.ones((1, 2))] * 4)  # all distances 0
    assert (MIMLNN(alpha=0.0, random_state=0).fit(same, Y[:4]).coef_ == 0).all()


# ---------------------------------------------------------------------- all four


@pytest.mark.parametrize("cls", FAMILY)
def test_constant_labels_get_constant_scores(cls):
    bags, Y = sample_bags(40, n_labels=4)
    Y[:, 0], Y[:, 1] = 1, 0
    model = seeded(cls).fit(bags, Y)
    S = model.decision_function(bags)
    assert (S[:, 0] == 1.0).all() and (S[:, 1] == -1.0).all()
    np.testing.assert_array_equal(model.constant_scores_, [1.0, -1.0, np.nan, np.nan])
    assert (S[:, 2:].std(axis=0) > 0).all()
    only = seeded(cls).fit(bags, Y[:, :2]).predict(bags)
    np.testing.assert_array_equal(only, Y[:, :2])


@pytest.mark.parametrize("cls", FAMILY)
def test_one_training_bag(cls):
    bags, Y = sample_bags(5)
    model = seeded(cls).fit(bags[:1], Y[:1])
    np.testing.assert_array_equal(model.predict(bags), np.tile(Y[0], (5, 1)))


@pytest.mark.parametrize("cls", FAMILY)
@pytest.mark.parametrize("is_sparse", [False, True])
def test_saved_and_loaded(cls, is_sparse, tmp_path):
    bags, Y = sample_bags(30)
    if is_sparse:
        bags = bags.with_X(sparse.csr_array(np.where(np.abs(bags.X) > 1.0, bags.X, 0.0)))
    model = seeded(cls).fit(bags, Y)
    bagwise.save(model, tmp_path / "model.skops")
    again = bagwise.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.decision_function(bags), model.decision_function(bags))
    assert len(model.bags_) == (30 if cls is MIMLKNN else len(np.unique(model.medoids_)))
    assert model.bags_.is_sparse == is_sparse and not model.bags_.instance_info


@pytest.mark.parametrize("cls", FAMILY)
def test_prediction_in_pieces(cls, monkeypatch):
    bags, Y = sample_bags(30)
    model = seeded(cls).fit(bags, Y)
    whole = model.decision_function(bags)
    monkeypatch.setattr("bagwise.models.distance.base._CELLS", 1)
    np.testing.assert_allclose(model.decision_function(bags), whole, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("cls", "parameters"),
    [
        (MIMLSVM, {"ratio": 0.0}),
        (MIMLSVM, {"ratio": 1.5}),
        (MIMLSVM, {"kernel": "poly"}),
        (MIMLSVM, {"gamma": -1.0}),
        (MIMLSVM, {"gamma": "auto"}),
        (MIMLSVM, {"C": 0.0}),
        (MIMLSVM, {"threshold_rule": "best"}),
        (MIMLKNN, {"n_references": 0}),
        (MIMLKNN, {"n_citers": 2.5}),
        (MIMLKNN, {"distance": "mean"}),
        (MIMLRBF, {"width_scale": 0.0}),
        (MIMLNN, {"alpha": -1.0}),
        (MIMLNN, {"scaling": "standard"}),
    ],
)
def test_settings_without_meaning(cls, parameters):
    bags, Y = sample_bags(10)
    with pytest.raises(ValueError, match=next(iter(parameters))):
        cls(**parameters).fit(bags, Y)


def test_what_settings_have_in_common_is_computed_once(monkeypatch):
    calls = []

    def counted(X, offsets, *others, **settings):
        calls.append(len(offsets) - 1)
        return inner(X, offsets, *others, **settings)

    inner = base.hausdorff_distances.__wrapped__
    counted.__module__, counted.__qualname__ = "here", "counted"
    monkeypatch.setattr(base, "hausdorff_distances", remembered(counted))
    data = make_miml(n_bags=60, n_labels=3, random_state=0)
    grid = {"n_references": [2, 3, 4], "n_citers": [2, 3, 4]}
    folds = MultilabelKFold(2, random_state=0)
    with shared_work():
        GridSearchCV(MIMLKNN(), grid, scoring=get_scorer("average_precision"), cv=folds).fit(
            data.bags, data.Y
        )
    assert len(calls) == 5  # training and test part of two folds, and all bags; 37 without sharing
