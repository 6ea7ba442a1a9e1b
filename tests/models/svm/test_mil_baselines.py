"""MI-SVM, mi-SVM, MILES, set kernels and codebooks against loops, whole programmes and plain machines."""

import pickle
import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler
from sklearn.svm import SVC

import bagwise
from bagwise import Bags
from bagwise.models import MILES, MISVM, CodebookSVM, SetKernelSVM
from bagwise.models._shared.scaling import apply_scaling, learn_scaling
from bagwise.models.svm.base import blocks, short_indices
from bagwise.models.svm.miles import bag_similarities, select_prototypes
from bagwise.models.svm.set_kernel import graph_weights, own_kernels, set_kernel

FAMILY = [MISVM(), MISVM("instance"), MILES(penalty=0.1), SetKernelSVM(), SetKernelSVM("graph")]
FAMILY += [CodebookSVM(10, random_state=0), MISVM(kernel="linear"), SetKernelSVM(kernel="linear")]


def planted(n_bags=40, d=3, noise=0.6, seed=0):
    """Every second bag has one instance around (4, 0, ...); the others lie around the origin."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_bags) % 2
    sizes = rng.integers(2, 6, n_bags)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.normal(scale=noise, size=(offsets[-1], d))
    rows = offsets[:-1] + rng.integers(0, sizes)
    X[rows[y == 1], 0] += 4.0
    return Bags(X, offsets), y, rows[y == 1]


def random_bags(n_bags, d, seed, smallest=1):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(smallest, 6, n_bags)
    return Bags(rng.normal(size=(sizes.sum(), d)), np.concatenate([[0], np.cumsum(sizes)]))


def rbf(A, B, gamma):
    return np.exp(-gamma * ((A[:, None, :] - B[None, :, :]) ** 2).sum(axis=2))


# ---------------------------------------------------------------------- what all share


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_saved_and_loaded(model, tmp_path):
    bags, y, _ = planted()
    Y = np.column_stack([y, np.ones_like(y), 1 - y, np.zeros_like(y)])
    model.fit(bags, Y)
    bagwise.save(model, tmp_path / "model.skops")
    S = model.decision_function(bags)
    np.testing.assert_array_equal(bagwise.load(tmp_path / "model.skops").decision_function(bags), S)
    np.testing.assert_array_equal(S[:, [1, 3]], np.tile([1.0, -1.0], (len(y), 1)))  # constant labels
    assert pickle.loads(pickle.dumps(model)).instance_scores(bags).shape == (bags.n_instances, 4)


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_nothing_but_constant_labels(model):
    bags, y, _ = planted(10)
    S = model.fit(bags, np.column_stack([np.ones_like(y), np.zeros_like(y)])).decision_function(bags)
    np.testing.assert_array_equal(S, np.tile([1.0, -1.0], (10, 1)))
    assert model.instance_scores(bags).shape == (bags.n_instances, 2)


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_learning_from_csr(model):
    bags, y, _ = planted()
    thin = bags.with_X(np.where(np.abs(bags.X) > 0.4, bags.X, 0.0))
    as_csr = thin.with_X(sparse.csr_array(thin.X))
    model.set_params(scaling="none")
    try:
        dense = model.fit(thin, y).decision_function(thin)
        from_csr = model.fit(as_csr, y).decision_function(as_csr)
    finally:
        model.set_params(scaling="standard")
    # the solver stops within its own tolerance, at a place that the last bits of the kernel decide
    np.testing.assert_allclose(from_csr, dense, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_learns_what_is_planted(model):
    bags, y, _ = planted(80)
    model.fit(bags[:40], y[:40])
    assert (model.predict(bags[40:]) == y[40:]).mean() > 0.8


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_blocks_change_nothing(model, monkeypatch):
    bags, y, _ = planted(12)
    model.fit(bags, y)
    whole, instances = model.decision_function(bags), model.instance_scores(bags)
    monkeypatch.setattr("bagwise.models.svm.base.CELLS", 60)
    monkeypatch.setattr("bagwise.models.svm.miles.CELLS", 60)
    monkeypatch.setattr("bagwise.models.svm.set_kernel._CELLS", 60)
    np.testing.assert_allclose(model.decision_function(bags), whole, atol=1e-10)
    np.testing.assert_allclose(model.instance_scores(bags), instances, atol=1e-10)


def test_blocks_cover_all_bags():
    bags = random_bags(23, 1, seed=0)
    for n_rows in (1, 4, 7, 1000):
        parts = list(blocks(bags, n_rows))
        np.testing.assert_array_equal(np.concatenate([part.X for part in parts]), bags.X)
        assert all(part.n_instances <= n_rows or len(part) == 1 for part in parts)


@pytest.mark.parametrize("scaling", ["standard", "minmax", "l2", "none"])
def test_scaling_is_that_of_scikit_learn(scaling):
    X, new = np.random.default_rng(0).normal(1.0, 3.0, size=(2, 20, 4))
    theirs = {"standard": StandardScaler(), "minmax": MinMaxScaler(), "l2": Normalizer()}.get(scaling)
    expected = new if theirs is None else theirs.fit(X).transform(new)
    scale = learn_scaling(X, scaling)
    if scaling == "minmax":  # moved by a constant, which no kernel of differences sees
        expected = expected - theirs.transform(np.zeros((1, 4)))
    np.testing.assert_allclose(apply_scaling(new, scale), expected)
    long = sparse.csr_array(new)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    got = short_indices(apply_scaling(long, scale))
    np.testing.assert_allclose(got.toarray() if sparse.issparse(got) else got, expected)


@pytest.mark.parametrize(
    ("cls", "wrong"),
    [
        (MISVM, {"margin": "mi"}),
        (MISVM, {"kernel": "poly"}),
        (MISVM, {"C": 0.0}),
        (MISVM, {"max_iter": 0}),
        (MISVM, {"positive_weight": -1.0}),
        (MISVM, {"gamma": "auto"}),
        (MILES, {"gamma": -1.0}),
        (MILES, {"penalty": 0.0}),
        (MILES, {"positive_cost": 1.0}),
        (SetKernelSVM, {"weights": "all"}),
        (SetKernelSVM, {"normalization": "paper"}),
        (SetKernelSVM, {"graph_distance": "l1"}),
        (SetKernelSVM, {"edge_threshold": -1.0}),
        (CodebookSVM, {"n_words": 0}),
        (CodebookSVM, {"scaling": "robust"}),
    ],
)
def test_bad_parameters_are_named(cls, wrong):
    bags, y, _ = planted(10)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        cls(**wrong).fit(bags, y)


# ---------------------------------------------------------------------- MI-SVM and mi-SVM


@pytest.mark.parametrize("margin", ["bag", "instance"])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_bags_of_one_instance_are_a_plain_machine(margin, kernel):
    bags, _, _ = planted()
    singles = bags.singletons()
    labels = (bags.X[:, 0] + 0.5 * bags.X[:, 1] > 0.3).astype(int)
    model = MISVM(margin, kernel=kernel, C=2.0).fit(singles, labels)
    Z = StandardScaler().fit_transform(bags.X)
    plain = SVC(kernel=kernel, gamma="scale", C=2.0).fit(Z, labels)
    assert model.n_iter_ == 1  # a positive bag of one keeps its instance positive: nothing to choose
    np.testing.assert_allclose(model.decision_function(singles), plain.decision_function(Z), atol=1e-2)


def objective(model, bags, y, examples, signs):
    """Half the squared norm and the slacks, from the kernel matrix of the support."""
    Z = StandardScaler().fit_transform(bags.X)
    K = rbf(model.support_vectors_, model.support_vectors_, model.gamma_)
    a = model.dual_coef_[:, 0]
    f = rbf(Z[examples], model.support_vectors_, model.gamma_) @ a + model.intercept_[0]
    return 0.5 * a @ K @ a + model.C * np.maximum(0.0, 1.0 - signs * f).sum()


@pytest.mark.parametrize("margin", ["bag", "instance"])
@pytest.mark.parametrize("seed", range(3))
def test_rounds_lower_the_objective_and_end_at_rest(margin, seed):
    bags, y, _ = planted(noise=1.5, seed=seed)  # overlapping: several rounds
    model = MISVM(margin, C=5.0).fit(bags, y)
    history = model.objective_[0][1:] if margin == "bag" else model.objective_[0]
    assert (np.diff(history) <= 2e-3 * history[:-1]).all()
    F, inside = model.instance_scores(bags)[:, 0], y[bags.index] > 0
    witnesses = model.witnesses_[0]
    chosen = np.zeros(len(F), bool)
    chosen[witnesses] = True
    assert not chosen[~inside].any()
    for b in np.flatnonzero(y):
        rows = np.flatnonzero(bags.index == b)
        best = rows[F[rows].argmax()]
        if margin == "bag":  # the one that is best under the machine it made
            np.testing.assert_array_equal(rows[chosen[rows]], [best])
        else:
            expected = F[rows] > 0
            expected[rows == best] = True
            np.testing.assert_array_equal(chosen[rows], expected)
            assert chosen[rows].any()
    examples = np.flatnonzero(~inside | (chosen if margin == "bag" else inside))
    signs = np.where(chosen[examples], 1.0, -1.0)
    np.testing.assert_allclose(objective(model, bags, y, examples, signs), history.min(), rtol=2e-3)


def test_witnesses_are_the_planted_instances():
    bags, y, rows = planted(noise=0.4)
    model = MISVM(kernel="linear", C=10.0).fit(bags, y)
    np.testing.assert_array_equal(model.witnesses_[0], rows)
    np.testing.assert_array_equal(model.key_instances(bags)[y == 1, 0, 0], rows)
    assert (model.predict(bags) == y).all()
    # the other instances of a positive bag may end on either side, the planted one cannot
    assert np.isin(rows, MISVM("instance", kernel="linear", C=10.0).fit(bags, y).witnesses_[0]).all()


def test_first_round_learns_from_means():
    bags, y, _ = planted()
    with pytest.warns(match="max_iter=1"):
        model = MISVM(max_iter=1).fit(bags, y)
    Z = StandardScaler().fit_transform(bags.X)
    means = np.array([Z[bags.index == b].mean(axis=0) for b in np.flatnonzero(y)])
    examples = np.concatenate([means, Z[y[bags.index] == 0]])
    plain = SVC(gamma=model.gamma_).fit(examples, np.arange(len(examples)) < len(means))
    np.testing.assert_allclose(model.instance_scores(bags)[:, 0], plain.decision_function(Z), atol=1e-2)
    assert (model.witnesses_[0] == -1).all()


def test_weight_of_positive_examples():
    bags, y, _ = planted(noise=1.5)
    y = y * (np.arange(len(y)) < 20)  # few positive bags
    recall = [
        MISVM(C=0.3, positive_weight=weight).fit(bags, y).predict(bags)[y == 1].mean()
        for weight in (1.0, "balanced")
    ]
    assert recall[1] > recall[0]


# ---------------------------------------------------------------------- MILES


def whole_programme(S, y, penalty, mu):
    """All prototypes at once, with dense matrices."""
    n, k = S.shape
    t = np.where(y > 0, 1.0, -1.0)
    A = np.hstack([-t[:, None] * S, t[:, None] * S, -t[:, None], -np.eye(n)])
    c = np.concatenate([np.full(2 * k, penalty), [0.0], np.where(y > 0, mu, 1.0 - mu)])
    bounds = [(0, None)] * (2 * k) + [(None, None)] + [(0, None)] * n
    return linprog(c, A_ub=A, b_ub=-np.ones(n), bounds=bounds, method="highs").fun


def test_two_bags_have_the_known_minimum():
    model = MILES(1.0, penalty=0.1, scaling="none").fit([[[0.0]], [[10.0]]], [1, 0])
    assert model.objective_[0] == pytest.approx(0.2)
    w = np.zeros(2)
    w[model.prototype_rows_] = model.coef_[0]
    assert w[0] - w[1] == pytest.approx(2.0)


@pytest.mark.parametrize("penalty", [0.05, 0.5, 3.0, 50.0])
@pytest.mark.parametrize("mu", [0.5, 0.8])
def test_minimum_is_that_of_the_whole_programme(penalty, mu):
    bags, y, _ = planted(60, noise=1.5, seed=3)
    S = bag_similarities(bags.X, bags.offsets, bags.X, 0.3)
    columns, w, b, value, _ = select_prototypes(y, S, penalty, mu)
    slack = np.maximum(0.0, 1.0 - np.where(y > 0, 1.0, -1.0) * (S[:, columns] @ w + b))
    reached = penalty * np.abs(w).sum() + np.where(y > 0, mu, 1.0 - mu) @ slack
    assert reached == pytest.approx(value, rel=1e-6)
    assert value == pytest.approx(whole_programme(S, y, penalty, mu), rel=1e-6)


def test_similarities_equal_loops():
    bags, others = random_bags(8, 2, seed=0), random_bags(4, 2, seed=1)
    expected = np.array([rbf(A, others.X, 0.7).max(axis=0) for A in bags])
    np.testing.assert_allclose(bag_similarities(bags.X, bags.offsets, others.X, 0.7), expected, atol=1e-12)


def test_scores_of_instances_add_up_to_those_of_bags():
    bags, y, _ = planted()
    doubled = Bags.from_list([np.concatenate([x, x[:1]]) for x in bags])  # with ties
    model = MILES(penalty=0.1).fit(bags, np.column_stack([y, 1 - y]))
    for some in (bags, doubled):
        F = model.instance_scores(some)
        sums = np.array([F[some.index == b].sum(axis=0) for b in range(len(some))])
        np.testing.assert_allclose(sums, model.decision_function(some), atol=1e-9)
    F = model.instance_scores(doubled)
    np.testing.assert_allclose(F[doubled.offsets[:-1]], F[doubled.offsets[1:] - 1], atol=1e-9)
    singles = bags.singletons()
    np.testing.assert_allclose(model.instance_scores(singles), model.decision_function(singles), atol=1e-9)


def test_shares_equal_loops():
    bags, y, _ = planted(noise=1.0)
    model = MILES(penalty=0.2).fit(bags, y)
    Z = StandardScaler().fit_transform(bags.X)
    expected = np.zeros(len(Z))
    for b in range(len(bags)):
        rows = np.flatnonzero(bags.index == b)
        S = rbf(Z[rows], model.prototypes_, model.gamma_)
        best = S.argmax(axis=0)
        for k, i in enumerate(best):
            expected[rows[i]] += model.coef_[0, k] * S[i, k]
        expected[rows[np.unique(best)]] += model.intercept_[0] / len(np.unique(best))
    np.testing.assert_allclose(model.instance_scores(bags)[:, 0], expected, atol=1e-9)


def test_a_large_penalty_selects_nothing():
    bags, y, _ = planted()
    model = MILES(penalty=1e3).fit(bags[:31], y[:31])
    assert len(model.prototype_rows_) == 0
    assert (model.decision_function(bags) == model.intercept_[0]).all()
    assert not model.predict(bags).any()  # sixteen of 31 bags are negative
    np.testing.assert_allclose(
        np.array([model.instance_scores(bags)[bags.index == b].sum() for b in range(len(bags))]),
        model.intercept_[0],
    )


# ---------------------------------------------------------------------- kernels of sets


def plain_weights(A, gamma, gaussian, threshold):
    W = []
    for i in range(len(A)):
        D = [((A[p] - A[q]) ** 2).sum() for p in range(len(A)) for q in range(p)]
        D = [1.0 - np.exp(-gamma * v) for v in D] if gaussian else D
        delta = (np.mean(D) if D else 0.0) if threshold is None else threshold
        near = 0
        for j in range(len(A)):
            v = ((A[i] - A[j]) ** 2).sum()
            near += i == j or (1.0 - np.exp(-gamma * v) if gaussian else v) < delta
        W.append(1.0 / near)
    return np.array(W)


def plain_kernel(A, C, gamma, u, v):
    total = 0.0
    for i in range(len(A)):
        for j in range(len(C)):
            k = A[i] @ C[j] if gamma is None else np.exp(-gamma * ((A[i] - C[j]) ** 2).sum())
            total += u[i] * v[j] * k
    return total


@pytest.mark.parametrize("gamma", [0.4, None])
@pytest.mark.parametrize("as_csr", [False, True])
@pytest.mark.parametrize("cells", [1, 30, 1 << 19])
def test_set_kernel_equals_double_loops(gamma, as_csr, cells, monkeypatch):
    monkeypatch.setattr("bagwise.models.svm.set_kernel._CELLS", cells)
    bags, others = random_bags(7, 3, seed=0), random_bags(5, 3, seed=1)
    u, v = (
        np.random.default_rng(2).random(bags.n_instances),
        np.random.default_rng(3).random(others.n_instances),
    )
    parts, other_parts = np.split(u, bags.offsets[1:-1]), np.split(v, others.offsets[1:-1])
    expected = [
        [plain_kernel(A, C, gamma, a, c) for C, c in zip(others, other_parts)] for A, a in zip(bags, parts)
    ]
    own = [[plain_kernel(A, C, gamma, a, c) for C, c in zip(bags, parts)] for A, a in zip(bags, parts)]
    X, Z = (sparse.csr_array(bags.X), sparse.csr_array(others.X)) if as_csr else (bags.X, others.X)
    got = set_kernel(X, bags.offsets, u, Z, others.offsets, v, gamma=gamma)
    np.testing.assert_allclose(got, expected, atol=1e-12)
    square = set_kernel(X, bags.offsets, u, gamma=gamma)
    np.testing.assert_allclose(square, own, atol=1e-12)
    np.testing.assert_array_equal(square, square.T)
    np.testing.assert_allclose(own_kernels(X, bags.offsets, u, gamma=gamma), np.diag(own), atol=1e-12)


@pytest.mark.parametrize("gaussian", [True, False])
@pytest.mark.parametrize("threshold", [None, 0.3, 0.0])
def test_graph_weights_equal_loops(gaussian, threshold):
    bags = random_bags(12, 2, seed=4)
    expected = np.concatenate([plain_weights(A, 0.5, gaussian, threshold) for A in bags])
    for X in (bags.X, sparse.csr_array(bags.X)):
        got = graph_weights(X, bags.offsets, gamma=0.5, gaussian=gaussian, threshold=threshold)
        np.testing.assert_allclose(got, expected)


@pytest.mark.parametrize("model", [SetKernelSVM(), SetKernelSVM("graph"), MILES(penalty=0.1)], ids=str)
def test_a_large_bag_needs_no_matrix_of_its_pairs(model):
    rng = np.random.default_rng(0)
    sizes = np.array([6000, 3, 4, 5])
    bags = Bags(rng.normal(size=(sizes.sum(), 3)), np.concatenate([[0], np.cumsum(sizes)]))
    model.fit(bags[1:], [1, 0, 1])  # compiles
    tracemalloc.start()
    try:
        model.fit(bags, [1, 0, 0, 1]).decision_function(bags)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 6000**2 / 4  # the matrix would be 288 MB


def test_what_cannot_fit_is_refused_with_advice(monkeypatch):
    monkeypatch.setattr("bagwise.utils.memory._physical_memory", lambda: 1000.0)
    bags, y, _ = planted(40)
    for model in (SetKernelSVM(), MILES()):
        with pytest.raises(MemoryError, match="take a sample of the bags"):
            model.fit(bags, y)


def kernel_of(model, bags, others):
    """Kernel matrix that the model uses, on features as they are."""
    u, v = model._weights(bags.X, bags.offsets), model._weights(others.X, others.offsets)
    return set_kernel(bags.X, bags.offsets, u, others.X, others.offsets, v, gamma=model._rbf)


def with_gamma(gamma, **parameters):
    model = SetKernelSVM(scaling="none", gamma=gamma, **parameters)
    model.gamma_ = gamma
    return model


def test_copies_of_an_instance_count_once():
    x, u = np.array([[1.0, 2.0]]), np.array([[0.0, 1.5]])
    copies, one = Bags.from_list([np.repeat(x, m, axis=0) for m in (1, 2, 5)]), Bags.from_list([u])
    K = kernel_of(with_gamma(0.3, weights="graph", normalization="mean"), copies, one)
    np.testing.assert_allclose(K, rbf(x, u, 0.3)[0, 0])


@pytest.mark.parametrize("threshold", [0.0, 1e9])
def test_graphs_without_edges_or_with_all_are_the_mean(threshold):
    bags = random_bags(9, 3, seed=5)
    graph = with_gamma(0.3, weights="graph", normalization="mean", edge_threshold=threshold)
    mean = with_gamma(0.3, normalization="mean")
    np.testing.assert_allclose(kernel_of(graph, bags, bags), kernel_of(mean, bags, bags), atol=1e-12)
    assert kernel_of(mean, bags, bags)[0, 1] == pytest.approx(rbf(bags[0], bags[1], 0.3).mean())


@pytest.mark.parametrize("weights", ["equal", "graph"])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_normalizations(weights, kernel):
    bags = random_bags(9, 3, seed=6)
    K = {
        name: kernel_of(with_gamma(0.3, weights=weights, kernel=kernel, normalization=name), bags, bags)
        for name in ("none", "cosine", "mean", "sqrt")
    }
    roots = np.sqrt(np.diag(K["none"]))
    np.testing.assert_allclose(np.diag(K["cosine"]), 1.0)
    np.testing.assert_allclose(K["cosine"], K["none"] / np.outer(roots, roots))
    W = with_gamma(0.3, weights=weights, normalization="none")._weights(bags.X, bags.offsets)
    sums = np.array([W[bags.index == b].sum() for b in range(9)])
    np.testing.assert_allclose(K["mean"], K["none"] / np.outer(sums, sums))
    np.testing.assert_allclose(K["sqrt"], K["none"] / np.sqrt(np.outer(sums, sums)))
    root_sqrt = np.sqrt(np.diag(K["sqrt"]))  # "sqrt" and then a cosine is a cosine
    np.testing.assert_allclose(K["sqrt"] / np.outer(root_sqrt, root_sqrt), K["cosine"])


@pytest.mark.parametrize("weights", ["equal", "graph"])
@pytest.mark.parametrize("normalization", ["cosine", "mean", "sqrt", "none"])
def test_set_kernel_of_single_instances_is_a_plain_machine(weights, normalization):
    bags, _, _ = planted()
    labels = (bags.X[:, 0] + 0.5 * bags.X[:, 1] > 0.3).astype(int)
    Z = StandardScaler().fit_transform(bags.X)
    model = SetKernelSVM(weights, C=3.0, normalization=normalization).fit(bags.singletons(), labels)
    plain = SVC(C=3.0, gamma="scale").fit(Z, labels)
    np.testing.assert_allclose(
        model.decision_function(bags.singletons()), plain.decision_function(Z), atol=1e-2
    )


def test_machine_on_double_loops():
    bags, y, _ = planted(50, noise=1.5)
    Z = [
        np.asarray(z)
        for z in np.split(StandardScaler().fit(bags[:30].X).transform(bags.X), bags.offsets[1:-1])
    ]
    gamma = 1.0 / 3.0
    W = [plain_weights(A, gamma, True, None) for A in Z]
    K = np.array([[plain_kernel(A, C, gamma, a, c) for C, c in zip(Z, W)] for A, a in zip(Z, W)])
    K /= np.sqrt(np.outer(np.diag(K), np.diag(K)))
    plain = SVC(kernel="precomputed", C=10.0, tol=1e-6).fit(K[:30, :30], y[:30])
    model = SetKernelSVM("graph", C=10.0, gamma=gamma).fit(bags[:30], y[:30])
    expected = plain.decision_function(K[30:, :30])
    np.testing.assert_allclose(model.decision_function(bags[30:]), expected, atol=1e-4)


# ---------------------------------------------------------------------- codebooks


def test_as_many_words_as_instances_are_the_empirical_distribution():
    values = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [5.0, 5.0]])
    bags = Bags.from_list([values[[0, 1]], values[[2, 2, 0]], values[[3]], values[[1, 3, 3, 2]]])
    model = CodebookSVM(4, scaling="none", random_state=0).fit(bags, [0, 1, 0, 1])
    order = [int(np.abs(model.words_ - value).sum(axis=1).argmin()) for value in values]
    np.testing.assert_allclose(model.words_[order], values, atol=1e-12)
    expected = [[0.5, 0.5, 0, 0], [1 / 3, 0, 2 / 3, 0], [0, 0, 0, 1], [0, 0.25, 0.25, 0.5]]
    np.testing.assert_allclose(model.histograms(bags)[:, order], expected)
    more = CodebookSVM(9, scaling="none", random_state=0).fit(bags, [0, 1, 0, 1])  # fewer distinct ones
    assert len(more.words_) == 4


def test_histograms_equal_loops_and_feed_a_plain_machine():
    bags, y, _ = planted(50, noise=1.5)
    model = CodebookSVM(8, C=5.0, random_state=0).fit(bags[:30], y[:30])
    Z = StandardScaler().fit(bags[:30].X).transform(bags.X)
    H = np.zeros((50, len(model.words_)))
    for i, z in enumerate(Z):
        H[bags.index[i], ((model.words_ - z) ** 2).sum(axis=1).argmin()] += 1.0 / bags.sizes[bags.index[i]]
    np.testing.assert_allclose(model.histograms(bags), H)
    plain = SVC(C=5.0, gamma="scale").fit(H[:30], y[:30])
    np.testing.assert_allclose(model.decision_function(bags), plain.decision_function(H), atol=1e-2)


def test_several_classes():
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], 15)
    centres = {"a": (0, 0), "b": (4, 0), "c": (0, 4)}
    bags = Bags.from_list([rng.normal(centres[c], 0.7, size=(rng.integers(1, 5), 2)) for c in y])
    for model in FAMILY:
        assert (model.fit(bags, y).predict(bags) == y).mean() > 0.9, model
