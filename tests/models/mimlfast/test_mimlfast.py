"""MIMLfast against plain NumPy: a step, a run of Algorithm 1, the mini-batch gradient, the estimator."""

import numpy as np
import pytest
from joblib import parallel_config
from scipy import sparse
from sklearn.exceptions import NotFittedError

from bagwise import Bags
from bagwise.datasets.msra_like import make_msra_like
from bagwise.datasets.synthetic import make_miml, make_sub_concepts
from bagwise.errors import DataError
from bagwise.metrics import hamming_loss, ranking_loss
from bagwise.models.mimlfast.batch_kernels import adam_step, dense_slice, tile_scores, warp_gradient
from bagwise.models.mimlfast.estimator import MIMLFast
from bagwise.models.mimlfast.forward import Forward, Scaling
from bagwise.models.mimlfast.select import PAPER_GRID, select_mimlfast
from bagwise.models.mimlfast.sgd_kernels import ranking_sum, sgd_steps, triplet_step
from bagwise.models.mimlfast.train import LabelRows, best_offset
from bagwise.parallel import Workers

MASK = (1 << 64) - 1


def instances(X, is_sparse):
    """The five arguments by which the kernels take instances."""
    if not is_sparse:
        none = np.empty(0, np.int64)
        return X, np.empty(0, X.dtype), none, np.zeros(1, np.int64), False
    S = sparse.csr_array(X)
    return (
        np.empty((0, 0), X.dtype), S.data, S.indices.astype(np.int64), S.indptr.astype(np.int64), True,
    )  # fmt: skip


def capped(v, C):
    norm = np.linalg.norm(v)
    return v * (C / norm) if norm > C else v


def numpy_step(W0, W, x, x_bar, y, k, y_bar, k_bar, rate, C):
    """Eqs. (7) to (9) and the normalisation, from old values."""
    w, w_bar = W[y, k].copy(), W[y_bar, k_bar].copy()
    new_W0 = W0 - rate * (np.outer(w_bar, x_bar) - np.outer(w, x))
    new_W = W.copy()
    new_W[y, k] = capped(w + rate * W0 @ x, C)
    new_W[y_bar, k_bar] = capped(w_bar - rate * W0 @ x_bar, C)
    return np.column_stack([capped(c, C) for c in new_W0.T]), new_W


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize(("dtype", "tol"), [(np.float64, 1e-12), (np.float32, 1e-6)])
@pytest.mark.parametrize("C", [0.9, 10.0])
def test_one_step_equals_numpy(is_sparse, dtype, tol, C):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((4, 7)) * (rng.random((4, 7)) < 0.6)).astype(dtype)
    W0 = np.column_stack([capped(c, C) for c in rng.standard_normal((33, 7)).T])
    W = 0.3 * rng.standard_normal((5, 2, 33))
    A, V = np.ascontiguousarray(W0.T).astype(dtype), W.astype(dtype)
    expected = numpy_step(A.T.astype(float), V.astype(float), *X[[1, 3]].astype(float), 0, 1, 4, 0, 0.05, C)
    p, p_bar = X[1] @ A, X[3] @ A
    triplet_step(*instances(X, is_sparse), 1, 3, A, V, 0, 1, 4, 0, p, p_bar, dtype(0.05), dtype(C))
    np.testing.assert_allclose(A.T, expected[0], rtol=tol, atol=tol)
    np.testing.assert_allclose(V, expected[1], rtol=tol, atol=tol)


class Draws:
    """splitmix64, written from its definition."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        z ^= z >> 31
        return ((z >> 32) * n) >> 32


def numpy_algorithm1(bags, Y, W0, W, C, gamma0, eta, n_steps, seed, every):
    draws, dummy = Draws(seed), Y.shape[1]
    total, total_W = np.zeros_like(W0), np.zeros_like(W)

    def best(X, l):
        F = X @ W0.T @ W[l].T
        i, k = np.unravel_index(F.argmax(), F.shape)
        return F[i, k], i, k

    for t in range(n_steps):
        b = draws.below(len(bags))
        X, relevant = bags[b], np.flatnonzero(Y[b])
        y = ([*relevant, dummy])[draws.below(len(relevant) + 1)]
        others = [l for l in range(dummy) if not Y[b, l]] + ([dummy] if y != dummy else [])
        if others:
            f, i, k = best(X, y)
            for v in range(1, len(others) + 1):
                y_bar = others[draws.below(len(others))]
                f_bar, j, k_bar = best(X, y_bar)
                if f_bar > f - 1:
                    S = sum(1 / r for r in range(1, len(others) // v + 1))
                    rate = gamma0 / (1 + eta * gamma0 * t) * S
                    W0, W = numpy_step(W0, W, X[i], X[j], y, k, y_bar, k_bar, rate, C)
                    break
        if t % every == 0:
            total, total_W = total + W0, total_W + W
    return W0, W, total, total_W


@pytest.mark.parametrize("is_sparse", [False, True])
def test_algorithm_1_equals_numpy_draw_by_draw(is_sparse):
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 5, 12)
    bags = Bags(rng.standard_normal((sizes.sum(), 6)), np.concatenate([[0], np.cumsum(sizes)]))
    Y = (rng.random((12, 4)) < 0.4).astype(np.int8)
    Y[0], Y[1] = 0, 1  # only the dummy is relevant; nothing but the dummy is irrelevant
    W0, W = rng.standard_normal((8, 6)), rng.standard_normal((5, 3, 8))
    expected = numpy_algorithm1(bags, Y, W0, W, 2.5, 0.02, 0.5, 300, 17, 10)
    A, V = np.ascontiguousarray(W0.T), W.copy()
    sums = np.zeros_like(A), np.zeros_like(V)
    used = np.zeros((5, 3), np.int64)
    rows = LabelRows.from_matrix(Y)
    n, n_capped = sgd_steps(
        *instances(bags.X, is_sparse), bags.offsets, rows.labels, rows.starts, A, V, 2.5, 0.02, 0.5, 0, 300,
        np.array([17], np.uint64), *sums, 10, used,
    )  # fmt: skip
    assert n == 30
    assert n_capped > 0
    assert used.sum() <= 300
    for got, want in zip((A.T, V, sums[0].T, sums[1]), expected):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-10)


def numpy_psi(P, W, edges, Y):
    """Eq. (5) summed over bags, relevant labels and the dummy, straight from the definitions."""
    loss, dummy = 0.0, Y.shape[1]
    for b in range(len(Y)):
        f = (P[edges[b] : edges[b + 1]] @ W.transpose(0, 2, 1)).max(axis=(0, 1))
        for y in [*np.flatnonzero(Y[b]), dummy]:
            others = [l for l in range(dummy) if not Y[b, l]] + ([dummy] if y != dummy else [])
            violations = [1 + f[j] - f[y] for j in others if f[j] > f[y] - 1]
            R = len(violations)
            loss += sum(1 / r for r in range(1, R + 1)) * sum(violations) / max(R, 1)
    return loss


def test_minibatch_gradient_is_that_of_equation_5():
    rng = np.random.default_rng(1)
    edges = np.array([0, 2, 3, 7, 9])
    Y = np.array([[1, 0, 0], [0, 0, 0], [1, 1, 1], [0, 1, 1]], np.int8)
    P, W = rng.standard_normal((9, 5)), 0.4 * rng.standard_normal((2, 4, 5))
    harmonic = np.array([0, 1, 1.5, 1.5 + 1 / 3, 1.5 + 1 / 3 + 0.25])
    dP, dW, used = np.full_like(P, 7.0), np.zeros_like(W), np.zeros((4, 2), np.int64)
    hit = np.ones(9, np.bool_)
    S = P @ W.reshape(-1, 5).T
    loss = warp_gradient(S, P, W, edges, np.arange(4), *LabelRows.from_matrix(Y), harmonic, dP, dW, hit, used)
    np.testing.assert_array_equal(hit, (dP != 0).any(axis=1))
    np.testing.assert_allclose(loss, numpy_psi(P, W, edges, Y), rtol=1e-12)
    assert used.sum(axis=1).tolist() == [2, 2, 2, 4]
    for value, gradient in ((P, dP), (W, dW)):
        for index in np.ndindex(value.shape):
            old, h = value[index], 1e-6
            value[index] = old + h
            above = numpy_psi(P, W, edges, Y)
            value[index] = old - h
            below = numpy_psi(P, W, edges, Y)
            value[index] = old
            assert gradient[index] == pytest.approx((above - below) / (2 * h), abs=1e-6)


@pytest.mark.parametrize("tile_bags", [1, 3, 9])
def test_a_slice_in_one_piece(tile_bags):
    """Gradients for the shared space by finite differences; instances without a gradient are left out."""
    rng = np.random.default_rng(2)
    sizes = rng.integers(1, 6, 9)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X, Y = rng.standard_normal((offsets[-1], 4)), (rng.random((9, 3)) < 0.4).astype(np.int8)
    bags = np.array([7, 0, 3, 4, 8])
    mean, factor, constant = rng.standard_normal(4), rng.random(4), 0.7
    rows = np.concatenate([np.arange(offsets[b], offsets[b + 1]) for b in bags])
    Z = np.column_stack([(X[rows] - mean) * factor, np.full(len(rows), constant)])
    edges = np.concatenate([[0], np.cumsum(sizes[bags])])
    A, W = rng.standard_normal((5, 6)), 0.5 * rng.standard_normal((2, 4, 6))
    n, harmonic = len(rows) + 2, np.concatenate([[0], np.cumsum(1 / np.arange(1, 5))])
    dA, dW, used = np.full_like(A, 7.0), np.full_like(W, 7.0), np.zeros((4, 2), np.int64)
    loss, n_active = dense_slice(
        X, offsets, bags, mean, factor, constant, A, W, tile_bags, *LabelRows.from_matrix(Y), harmonic,
        np.zeros(len(bags) + 1, np.int64), np.empty((n, 5)), np.empty((n, 6)), np.empty((n, 8)),
        np.empty((n, 6)), np.empty(n, np.bool_), dA, dW, used,
    )  # fmt: skip
    assert 0 < n_active < len(rows)
    assert loss == pytest.approx(numpy_psi(Z @ A, W, edges, Y[bags]), rel=1e-12)
    assert used.sum() == Y[bags].sum() + len(bags)
    for value, gradient in ((A, dA), (W, dW)):
        for index in np.ndindex(value.shape):
            old, h = value[index], 1e-6
            value[index] = old + h
            above = numpy_psi(Z @ A, W, edges, Y[bags])
            value[index] = old - h
            below = numpy_psi(Z @ A, W, edges, Y[bags])
            value[index] = old
            assert gradient[index] == pytest.approx((above - below) / (2 * h), abs=1e-5)


@pytest.mark.parametrize("tile_bags", [1, 2, 4])
def test_scores_tile_by_tile(tile_bags):
    rng = np.random.default_rng(0)
    edges = np.array([0, 2, 3, 7, 9])
    P, W = rng.standard_normal((9, 5)), rng.standard_normal((2, 4, 5))
    out = np.empty((4, 4))
    tile_scores(P, W, edges, tile_bags, np.empty((9, 8)), out)
    every = np.einsum("im,klm->ikl", P, W)
    expected = [every[a:b].max(axis=(0, 1)) for a, b in zip(edges, edges[1:])]
    np.testing.assert_allclose(out, expected, rtol=1e-12)


def test_ranking_loss_of_held_out_bags():
    rng = np.random.default_rng(0)
    Y, S = rng.integers(0, 2, (60, 4)).astype(np.int8), rng.integers(0, 5, (60, 4)).astype(float)
    Y[0], Y[1] = 0, 1
    total, n_proper = ranking_sum(Y, S)
    assert n_proper == np.count_nonzero((Y.sum(axis=1) > 0) & (Y.sum(axis=1) < 4))
    assert total / n_proper == pytest.approx(ranking_loss(Y, S), rel=1e-12)


def test_memory_is_lent_to_as_many_as_work_at_once():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3)).astype(np.float32)
    one = np.ones(3, np.float32)
    with Workers(2) as workers:
        forward = Forward(X, np.arange(41), Scaling(0 * one, one, 1.0, False), 3, 2, 4, workers, slice_bags=4)
        A, W = rng.standard_normal((4, 4)), rng.standard_normal((2, 3, 4))
        forward.scores(np.arange(40), A.astype(np.float32), W.astype(np.float32))
    assert 1 <= len(forward._free) <= 2


def test_adam_step_equals_numpy():
    rng = np.random.default_rng(0)
    x, slices = rng.standard_normal((3, 4)), rng.standard_normal((2, 3, 4))
    first, second = rng.standard_normal((3, 4)), rng.random((3, 4))
    g = 0.5 * slices.sum(axis=0)
    m1, m2 = 0.9 * first + 0.1 * g, 0.99 * second + 0.01 * g * g
    expected = x - 0.1 * (m1 * 2.0) / (np.sqrt(m2 * 3.0) + 1e-8)
    expected = np.array([capped(row, 1.2) for row in expected])
    adam_step(x, slices, first, second, 0, 3, 0.1, 0.9, 0.99, 2.0, 3.0, 0.5, 1.2)
    np.testing.assert_allclose(x, expected, rtol=1e-12)


def test_best_offset_against_trying_all():
    rng = np.random.default_rng(0)
    for _ in range(50):
        margins = rng.integers(-3, 4, (4, 3)).astype(float)
        Y = rng.integers(0, 2, (4, 3))
        tried = [np.mean((margins > o) != Y) for o in np.arange(-5, 5, 0.25)]
        assert np.mean((margins > best_offset(margins, Y)) != Y) == pytest.approx(min(tried))


# ---------------------------------------------------------------------- the estimator

SMALL = {"n_components": 12, "n_sub_concepts": 2, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    return make_miml(n_bags=150, n_labels=5, n_features=8, random_state=0)


@pytest.fixture(scope="module", params=["asgd", "minibatch", "sgd"])
def solver(request):
    return request.param


def by_hand(model, bags):
    """`decision_function` from the public attributes alone."""
    scores = []
    for X in bags:
        X = X.toarray() if sparse.issparse(X) else X
        P = X.astype(float) @ model.shared_space_.T + model.shared_intercept_
        scores.append(np.einsum("im,lkm->ilk", P, model.label_weights_).max(axis=(0, 2)))
    f = np.array(scores)
    return f[:, :-1] - f[:, -1:] - model.offset_


def test_learns_and_can_be_checked_by_hand(solver, data):
    model = MIMLFast(solver=solver, **SMALL).fit(data.bags[:100], data.Y[:100])
    S = model.decision_function(data.bags[100:])
    np.testing.assert_allclose(S, by_hand(model, data.bags[100:]), rtol=1e-9, atol=1e-9)
    assert ranking_loss(data.Y[100:], S) < 0.1
    assert hamming_loss(data.Y[100:], (S > 0).astype(int)) < 0.5 * data.Y[100:].mean()
    assert model.shared_space_.shape == (12, 8)
    assert model.label_weights_.shape == (6, 2, 12)
    assert (model.predict(data.bags) == (model.decision_function(data.bags) > 0)).all()
    F = model.instance_scores(data.bags)
    np.testing.assert_allclose(
        [F[a:b].max(axis=0) for a, b in zip(data.bags.offsets, data.bags.offsets[1:])],
        model.decision_function(data.bags),
    )
    assert model.n_iter_ <= len(model.objective_)
    assert model.solver_ == solver


def test_any_feature_scale(solver, data):
    rng = np.random.default_rng(0)
    factor, shift = 10.0 ** rng.integers(-6, 7, 8), rng.standard_normal(8) * 100
    X = data.bags.X.astype(np.float64)
    a = MIMLFast(solver=solver, max_iter=3, **SMALL).fit(data.bags.with_X(X), data.Y)
    other = data.bags.with_X((X + shift) * factor)
    b = MIMLFast(solver=solver, max_iter=3, **SMALL).fit(other, data.Y)
    np.testing.assert_allclose(
        a.decision_function(data.bags), b.decision_function(other), rtol=1e-3, atol=1e-3
    )


def test_text_like_data_dense_or_sparse(solver):
    rng = np.random.default_rng(0)
    X = rng.poisson(0.05, (240, 40)) * 1.0
    Y = (X.reshape(60, 4, 40).max(axis=1)[:, :3] > 0).astype(int)
    offsets = np.arange(0, 241, 4)
    settings = {**SMALL, "max_iter": 20, "n_iter_no_change": 20}
    a = MIMLFast(solver=solver, **settings).fit(Bags(X, offsets), Y)
    sparse_bags = Bags(sparse.csr_array(X), offsets)
    b = MIMLFast(solver=solver, **settings).fit(sparse_bags, Y)
    np.testing.assert_allclose(a.decision_function(sparse_bags), b.decision_function(Bags(X, offsets)))
    assert ranking_loss(Y, a.decision_function(sparse_bags)) < 0.35


def test_dense_data_given_as_sparse(solver, data):
    a = MIMLFast(solver=solver, max_iter=3, **SMALL).fit(data.bags, data.Y)
    as_csr = data.bags.with_X(sparse.csr_array(data.bags.X))
    b = MIMLFast(solver=solver, max_iter=3, **SMALL).fit(as_csr, data.Y)
    np.testing.assert_allclose(
        a.decision_function(as_csr), b.decision_function(data.bags), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(("n_bags", "share", "expected"), [(400, 1.0, "asgd"), (3100, 1.0, "minibatch"),
                                                           (3100, 0.05, "asgd")])  # fmt: skip
def test_auto_goes_by_size_and_kind_of_data(n_bags, share, expected):
    rng = np.random.default_rng(0)
    X = rng.random((n_bags, 20)) * (rng.random((n_bags, 20)) < share)
    Y = (X[:, :2] > 0.5).astype(int)
    for form in (X, sparse.csr_array(X)):
        model = MIMLFast(2, 1, max_iter=1, random_state=0).fit(Bags(form, np.arange(n_bags + 1)), Y)
        assert model.solver_ == expected


def test_same_for_any_number_of_threads():
    data = make_msra_like(n_bags=400, n_labels=12, n_features=20, n_latent=10)
    models = [
        MIMLFast(solver="minibatch", batch_size=128, max_iter=2, n_jobs=n, **SMALL).fit(data.bags, data.Y)
        for n in (1, 3)
    ]
    np.testing.assert_array_equal(models[0].shared_space_, models[1].shared_space_)
    np.testing.assert_array_equal(models[0].label_weights_, models[1].label_weights_)
    assert models[0].offset_ == models[1].offset_


def test_same_seed_same_model(solver, data):
    a, b = (MIMLFast(solver=solver, max_iter=2, **SMALL).fit(data.bags, data.Y) for _ in range(2))
    np.testing.assert_array_equal(a.label_weights_, b.label_weights_)


def test_degenerate_labels(solver, data):
    Y = data.Y.copy()
    Y[:20], Y[20:40] = 0, 1
    Y[:, 4] = 0  # never seen
    model = MIMLFast(solver=solver, max_iter=4, **SMALL).fit(data.bags, Y)
    assert np.isfinite(model.decision_function(data.bags)).all()
    assert model.sub_concepts_in_use_[4] <= 2
    for constant in (0, 1):
        Y = np.full((len(data.bags), 3), constant)
        model = MIMLFast(solver=solver, max_iter=2, **SMALL).fit(data.bags, Y)
        assert (model.predict(data.bags) == constant).mean() > 0.95


def test_one_label_only(solver, data):
    model = MIMLFast(solver=solver, max_iter=20, **SMALL).fit(data.bags, data.Y[:, :1])
    assert (model.predict(data.bags) == data.Y[:, :1]).mean() > 0.85


def test_thousands_of_labels():
    data = make_msra_like(n_bags=100, n_labels=2000, n_features=10, n_latent=5)
    model = MIMLFast(4, 2, solver="minibatch", max_iter=1, random_state=0).fit(data.bags, data.Y)
    assert model.predict(data.bags).shape == (100, 2000)


def test_single_bag_and_single_instances():
    X = np.array([[0.0, 1.0], [2.0, 0.5], [1.0, 1.0]])
    MIMLFast(**SMALL).fit(Bags(X, [0, 3]), [[1, 0]]).predict(Bags(X, [0, 3]))
    MIMLFast(**SMALL).fit(X, [[1, 0], [0, 1], [1, 1]]).predict(X)


def test_rules_by_name(data):
    fits = {
        rule: MIMLFast(threshold_rule=rule, max_iter=5, **SMALL).fit(data.bags, data.Y)
        for rule in ("calibrated", "text", "line17", "code")
    }
    offsets = {rule: model.offset_ for rule, model in fits.items()}
    assert (offsets["text"], offsets["line17"], offsets["code"]) == (0.0, -1.0, 1.0)
    margins = fits["text"].decision_function(data.bags)
    assert (fits["text"].predict(data.bags) == (margins > 0)).all()
    assert (fits["line17"].predict(data.bags) == (1 + margins > 0)).all()
    strict = margins > 1
    strict[np.arange(len(margins)), margins.argmax(axis=1)] = True
    assert (fits["code"].predict(data.bags) == strict).all()


def test_averaging_keeps_the_offset_right(data):
    """The average of both factors shifts the scores; calibration on held-out bags must take that back."""
    model = MIMLFast(solver="asgd", max_iter=8, **SMALL).fit(data.bags[:100], data.Y[:100])
    margins = model.decision_function(data.bags[100:]) + model.offset_
    best = hamming_loss(data.Y[100:], (margins > best_offset(margins, data.Y[100:])).astype(int))
    assert hamming_loss(data.Y[100:], model.predict(data.bags[100:])) < best + 0.03


def test_sub_concepts_and_key_instances():
    data = make_sub_concepts(n_bags=400, n_labels=4, n_sub=3, random_state=0)
    losses = {}
    for K in (1, 3):
        model = MIMLFast(20, K, solver="minibatch", max_iter=25, random_state=0)
        model.fit(data.bags[:300], data.Y[:300])
        losses[K] = ranking_loss(data.Y[300:], model.decision_function(data.bags[300:]))
    assert losses[3] < losses[1]
    which, where = model.sub_concepts(data.bags)
    assert (where == model.key_instances(data.bags)[:, :, 0]).all()
    P = data.bags.X @ model.shared_space_.T + model.shared_intercept_
    for b, l in ((0, 0), (5, 3), (17, 2)):
        assert which[b, l] == (model.label_weights_[l] @ P[where[b, l]]).argmax()
    right = data.instance_Y[where] == np.arange(4)
    assert right[data.Y > 0].mean() > 0.8
    assert (model.sub_concepts_in_use_ >= 2).all()
    assert model.sub_concept_counts_.shape == (4, 3)


def test_key_instances_by_contrast(data):
    model = MIMLFast(max_iter=5, **SMALL).fit(data.bags, data.Y)
    F = model.instance_scores(data.bags)
    found = model.key_instances(data.bags, k=2, rule="contrast")
    for b in range(0, 150, 7):
        rows = np.arange(data.bags.offsets[b], data.bags.offsets[b + 1])
        for l in range(5):
            margin = [F[i, l] - max(F[i, j] for j in range(5) if j != l) for i in rows]
            expected = [*rows[np.argsort(-np.array(margin), kind="stable")][:2], -1][:2]
            assert found[b, l].tolist() == expected
    with pytest.raises(ValueError, match="rule"):
        model.key_instances(data.bags, rule="loudest")
    with pytest.raises(ValueError, match="k must"):
        model.key_instances(data.bags, k=0, rule="contrast")


@pytest.mark.parametrize("solver", ["minibatch", "asgd", "sgd"])
def test_partial_fit_learns_from_pieces(solver, data):
    model = MIMLFast(solver=solver, **SMALL)
    for _ in range(6):
        for start in range(0, 100, 25):
            model.partial_fit(data.bags[start : start + 25], data.Y[start : start + 25])
    S = model.decision_function(data.bags[100:])
    assert ranking_loss(data.Y[100:], S) < 0.15
    assert hamming_loss(data.Y[100:], (S > 0).astype(int)) < data.Y[100:].mean()
    np.testing.assert_allclose(S, by_hand(model, data.bags[100:]), rtol=1e-9, atol=1e-9)
    with pytest.raises(DataError, match="features"):
        model.partial_fit(data.bags[:5, :][:, :3], data.Y[:5])
    model.partial_fit(data.bags[:1], data.Y[:1])


def test_partial_fit_continues_a_fit(data):
    model = MIMLFast(**SMALL).fit(data.bags[:100], data.Y[:100])
    before = ranking_loss(data.Y[100:], model.decision_function(data.bags[100:]))
    model.partial_fit(data.bags[:100], data.Y[:100])
    assert ranking_loss(data.Y[100:], model.decision_function(data.bags[100:])) < before + 0.03


def test_partial_fit_with_classes():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.array(["a", "b"])[(X[:, 0] > 0).astype(int)]
    model = MIMLFast(**SMALL)
    only_a = np.flatnonzero(y == "a")[:5]
    model.partial_fit(X[only_a], y[only_a], classes=["a", "b"])
    for _ in range(10):
        model.partial_fit(X, y)
    assert (model.predict(X) == y).mean() > 0.8


@pytest.mark.parametrize(
    ("name", "value"),
    [("solver", "adam"), ("threshold_rule", "best"), ("scaling", "minmax"), ("n_components", 0),
     ("max_norm", 0.0), ("validation", 1.5), ("max_iter", 2.5), ("step_decay", np.nan), ("max_iter", -3),
     ("step_size", np.nan), ("learning_rate", np.inf), ("feature_norm", np.nan), ("n_jobs", 0),
     ("validation", -0.1), ("refit", "yes"), ("random_state", -1)],
)  # fmt: skip
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_refuses_settings_without_meaning(method, name, value, data):
    with pytest.raises(ValueError, match=f"^{name} of MIMLFast must be .*, got {value!r}$"):
        getattr(MIMLFast(**{**SMALL, name: value}), method)(data.bags, data.Y)


@pytest.mark.parametrize("validation", [100, 0.999])
def test_refuses_to_hold_out_everything(validation, data):
    with pytest.raises(ValueError, match=f"{validation} with 60 bags"):
        MIMLFast(validation=validation, **SMALL).fit(data.bags[:60], data.Y[:60])


def test_every_question_before_fit_is_refused(data):
    model = MIMLFast()
    for method in ("sub_concepts", "key_instances", "instance_scores", "annotate", "predict"):
        with pytest.raises(NotFittedError):
            getattr(model, method)(data.bags)
    with pytest.raises(NotFittedError):
        model.key_instances(data.bags, rule="contrast")


def test_contrast_of_a_single_label_is_its_score(data):
    model = MIMLFast(max_iter=2, **SMALL).fit(data.bags, data.Y[:, :1])
    by_contrast = model.key_instances(data.bags, rule="contrast")
    np.testing.assert_array_equal(by_contrast, model.key_instances(data.bags))


def test_input_is_left_alone_and_may_be_read_only(data):
    X = data.bags.X.copy()
    X.flags.writeable = False
    MIMLFast(max_iter=2, **SMALL).fit(Bags(X, data.bags.offsets), data.Y)
    np.testing.assert_array_equal(X, data.bags.X)


def test_validation_choices(data):
    for validation in (0, 0.2, 2):
        model = MIMLFast(validation=validation, max_iter=3, **SMALL).fit(data.bags, data.Y)
        assert len(model.objective_) == (0 if validation == 0 else 3)
        assert np.isfinite(model.offset_)


def test_grid_search(data):
    assert np.prod([len(values) for values in PAPER_GRID.values()]) == 288
    grid = {"n_components": [4, 12], "n_sub_concepts": [1], "step_size": [1e-7, 5e-3]}
    estimator = MIMLFast(solver="asgd", max_iter=8, random_state=0)
    choice = select_mimlfast(data.bags, data.Y, estimator=estimator, grid=grid, show_progress=False)
    assert len(choice.table) == 4
    assert choice.best_params["step_size"] == 5e-3
    assert choice.best_loss == min(row["ranking_loss"] for row in choice.table)
    assert choice.best_estimator.n_components == choice.best_params["n_components"]
    with pytest.raises(ValueError, match="gamma"):
        select_mimlfast(data.bags, data.Y, grid={"gamma": [1]})
    with pytest.raises(ValueError, match="keep"):
        select_mimlfast(data.bags, data.Y, keep=0.0)


def test_shared_work_changes_nothing(data):
    """Each setting on its own, in a grid of one, must give what it gives among the others."""
    bags, Y = data.bags[:60], data.Y[:60]
    estimator = MIMLFast(n_components=6, n_sub_concepts=1, solver="asgd", max_iter=4, random_state=0)
    grid = {"max_norm": [20.0, 0.5, 10.0], "step_size": [1e-3, 2e-2], "learning_rate": [0.1, 0.2]}
    settings = {"estimator": estimator, "refit": False, "show_progress": False}
    table = select_mimlfast(bags, Y, grid=grid, keep=None, **settings).table
    assert len(table) == 12
    for row in table:
        alone = {name: [row[name]] for name in grid}
        assert select_mimlfast(bags, Y, grid=alone, keep=None, **settings).table == [row]
    decays = select_mimlfast(bags, Y, grid={"step_decay": [1e-5, 1e-6, 10.0]}, keep=None, **settings).table
    losses = [row["ranking_loss"] for row in decays]
    assert losses[0] == losses[1] != losses[2]


def test_bad_settings_are_given_up(data):
    bags, Y = data.bags[:60], data.Y[:60]
    estimator = MIMLFast(n_components=6, n_sub_concepts=1, max_iter=10, n_iter_no_change=10, random_state=0)
    grid = {"solver": ["asgd"], "step_size": [1e-7, 1e-3, 5e-3, 2e-2, 1e-6, 1e-5]}
    some, full = (
        select_mimlfast(bags, Y, estimator=estimator, grid=grid, keep=keep, show_progress=False)
        for keep in (0.5, None)
    )
    assert sorted(row["passes"] for row in some.table) == [1, 1, 1, 3, 10, 10]
    assert all(row["passes"] == 10 for row in full.table)
    for a, b in zip(some.table, full.table):
        if a["passes"] == 10:
            assert a == b
    assert some.best_params == full.best_params
    with parallel_config("threading"):
        again = select_mimlfast(bags, Y, estimator=estimator, grid=grid, keep=0.5, n_jobs=2)
    assert again.table == some.table


def test_generator_keeps_its_promises():
    data = make_msra_like(n_bags=2000, n_labels=30, n_features=15, n_latent=8, random_state=1)
    assert data.bags.n_instances == 18_000
    assert 2.5 < data.Y.sum(axis=1).mean() < 2.9
    carried = np.zeros_like(data.Y)
    z = data.instance_Y
    carried[data.bags.index[z >= 0], z[z >= 0]] = 1
    np.testing.assert_array_equal(carried, data.Y)
    again = make_msra_like(n_bags=2000, n_labels=30, n_features=15, n_latent=8, random_state=1)
    np.testing.assert_array_equal(again.bags.X, data.bags.X)
    together = np.corrcoef(data.Y.T)[np.triu_indices(30, 1)]
    assert together.max() > 0.15
