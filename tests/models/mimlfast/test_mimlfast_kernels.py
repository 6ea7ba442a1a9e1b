"""MIMLfast's compiled loops against plain NumPy: a step, a run of Algorithm 1, the mini-batch gradient."""

import numpy as np
import pytest
from scipy import sparse

from bagwise import Bags
from bagwise.compute.threads import Workers
from bagwise.metrics import ranking_loss
from bagwise.models.mimlfast.fit_minibatch import Batches
from bagwise.models.mimlfast.kernels import (
    AdamStep,
    LabelRows,
    Moments,
    SliceMemory,
    adam_step,
    warp_gradient,
)
from bagwise.models.mimlfast.kernels_sgd import (
    Factors,
    Instances,
    Schedule,
    Scratch,
    Sums,
    TrainingBags,
    Triplet,
    ranking_sum,
    sgd_steps,
    triplet_step,
)
from bagwise.models.mimlfast.predict import Forward, Scale

MASK = (1 << 64) - 1


def instances(X, is_sparse):
    """Instances in the form that the kernels take."""
    if not is_sparse:
        return Instances(False, X, np.empty(0, X.dtype), np.empty(0, np.int64), np.zeros(1, np.int64))
    S = sparse.csr_array(X)
    none = np.empty((0, 0), X.dtype)
    return Instances(True, none, S.data, S.indices.astype(np.int64), S.indptr.astype(np.int64))


def harmonic_numbers(n):
    return np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, n + 1))])


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
    factors, scratch = Factors(A, V.reshape(-1, 33), 2), Scratch(X @ A, np.empty((2, 33), dtype), np.empty(0))
    triplet = Triplet(0, 1, 3, 0 * 2 + 1, 4 * 2 + 0)
    triplet_step(instances(X, is_sparse), factors, triplet, scratch, dtype(0.05), dtype(C))
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
    factors = Factors(A, V.reshape(-1, 8), 3)
    sums = Sums(np.zeros((6, 8)), np.zeros((15, 8)), np.zeros(6, np.int64), np.zeros(15, np.int64))
    scratch = Scratch(np.empty((4, 8)), np.empty((2, 8)), harmonic_numbers(5))
    used = np.zeros(15, np.int64)
    training = TrainingBags(instances(bags.X, is_sparse), bags.offsets, *LabelRows.from_matrix(Y))
    random = np.array([17], np.uint64)
    n, n_capped = sgd_steps(
        0, 300, training, factors, sums, scratch, Schedule(2.5, 0.02, 0.5, 10), random, used
    )
    for total, vectors, summed in ((sums[0], factors[0], sums[2]), (sums[1], factors[1], sums[3])):
        total += (n - summed)[:, None] * vectors  # vectors that have not changed since
    assert n == 30
    assert n_capped > 0
    assert used.sum() <= 300
    for got, want in zip((A.T, V, sums[0].T, sums[1].reshape(V.shape)), expected):
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


def check_gradients(loss, pairs, tol):
    """Finite differences of a loss by each entry of some arrays."""
    for value, gradient in pairs:
        for index in np.ndindex(value.shape):
            old, h = value[index], 1e-6
            value[index] = old + h
            above = loss()
            value[index] = old - h
            below = loss()
            value[index] = old
            assert gradient[index] == pytest.approx((above - below) / (2 * h), abs=tol)


def test_minibatch_gradient_is_that_of_equation_5():
    rng = np.random.default_rng(1)
    edges = np.array([0, 2, 3, 7, 9])
    Y = np.array([[1, 0, 0], [0, 0, 0], [1, 1, 1], [0, 1, 1]], np.int8)
    P, W = rng.standard_normal((9, 5)), 0.4 * rng.standard_normal((2, 4, 5))
    memory = SliceMemory.allocate((2, 4, 5), 4, 9, 9, 0, np.float64)
    memory.bounds[:], memory.projected[:], memory.projected_gradient[:] = edges, P, 7.0
    dW, used = np.zeros_like(W), np.zeros((4, 2), np.int64)
    rows, harmonic = LabelRows.from_matrix(Y), harmonic_numbers(4)
    loss = 0.0
    for first, last in ((0, 3), (3, 4)):  # in two tiles
        scores = P[edges[first] : edges[last]] @ W.reshape(-1, 5).T
        memory.scores[: len(scores)] = scores
        loss += warp_gradient(first, last, np.arange(4), rows, W, harmonic, memory, dW, used)
    np.testing.assert_array_equal(memory.active, (memory.projected_gradient != 0).any(axis=1))
    assert not memory.is_relevant.any()
    np.testing.assert_allclose(loss, numpy_psi(P, W, edges, Y), rtol=1e-12)
    assert used.sum(axis=1).tolist() == [2, 2, 2, 4]
    check_gradients(lambda: numpy_psi(P, W, edges, Y), ((P, memory.projected_gradient), (W, dW)), 1e-6)


@pytest.mark.parametrize("tile_bags", [1, 3, 9])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_gradients_of_a_slice(tile_bags, is_sparse):
    """Gradients for all parameters by finite differences; instances without a gradient are left out."""
    rng = np.random.default_rng(2)
    sizes = rng.integers(1, 6, 9)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X, Y = rng.standard_normal((offsets[-1], 4)), (rng.random((9, 3)) < 0.4).astype(np.int8)
    bags = np.array([7, 0, 3, 4, 8])
    mean, factor = rng.standard_normal(4) * (not is_sparse), rng.random(4)
    rows = np.concatenate([np.arange(offsets[b], offsets[b + 1]) for b in bags])
    Z = np.column_stack([(X[rows] - mean) * factor, np.full(len(rows), 0.7)])
    edges = np.concatenate([[0], np.cumsum(sizes[bags])])
    A, W = rng.standard_normal((5, 6)), 0.5 * rng.standard_normal((4, 2, 6))
    scale = Scale(mean, factor, 0.7, is_sparse)
    with Workers(1) as workers:
        X_given = sparse.csr_array(X) if is_sparse else X
        forward = Forward(X_given, offsets, scale, (2, 4, 6), workers, Y=Y)
        forward.tile_bags = tile_bags
        # in double precision, so that differences are exact enough
        forward._free.append(
            SliceMemory.allocate((2, 4, 6), 9, len(X), len(X), 0 if is_sparse else 5, np.float64)
        )
        steps = Batches(10.0, forward, {"A": A, "W": W, "moments": []}, np.array([0, len(bags)]))
        steps.space_slices, steps.vector_slices = np.full((1, 5, 6), 7.0), np.full((1, 8, 6), 7.0)
        steps.harmonic = harmonic_numbers(4)
        loss = steps._slice((0, bags))
    V = steps.vectors
    assert 0 < steps.n_active[0] < len(rows)
    assert steps.used.sum() == Y[bags].sum() + len(bags)

    def psi():
        return numpy_psi(Z @ A, V, edges, Y[bags])

    assert loss == pytest.approx(psi(), rel=1e-6)  # the constant feature is in single precision
    gradients = steps.space_slices[0], steps.vector_slices[0].reshape(V.shape)
    check_gradients(psi, zip((A, V), gradients), 1e-5)


@pytest.mark.parametrize("tile_bags", [1, 2, 4])
def test_scores_tile_by_tile(tile_bags):
    rng = np.random.default_rng(0)
    offsets = np.array([0, 2, 3, 7, 9])
    X = rng.standard_normal((9, 3)).astype(np.float32)
    A, W = rng.standard_normal((4, 5)).astype(np.float32), rng.standard_normal((2, 4, 5)).astype(np.float32)
    one = np.ones(3, np.float32)
    with Workers(1) as workers:
        forward = Forward(X, offsets, Scale(0 * one, one, 1.0, False), W.shape, workers)
        forward.tile_bags = tile_bags
        scores = forward.scores(np.array([2, 0, 3]), A, W)
    every = np.einsum("im,klm->ikl", np.column_stack([X, np.ones(9)]) @ A, W)
    expected = [every[offsets[b] : offsets[b + 1]].max(axis=(0, 1)) for b in (2, 0, 3)]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


def test_ranking_loss_of_held_out_bags():
    rng = np.random.default_rng(0)
    Y, S = rng.integers(0, 2, (60, 4)).astype(np.int8), rng.integers(0, 5, (60, 4)).astype(float)
    Y[0], Y[1] = 0, 1
    total, n_proper = ranking_sum(Y, S)
    assert n_proper == np.count_nonzero((Y.sum(axis=1) > 0) & (Y.sum(axis=1) < 4))
    assert total / n_proper == pytest.approx(ranking_loss(Y, S), rel=1e-12)


def test_adam_step_equals_numpy():
    rng = np.random.default_rng(0)
    x, slices = rng.standard_normal((3, 4)), rng.standard_normal((2, 3, 4))
    first, second = rng.standard_normal((3, 4)), rng.random((3, 4))
    g = 0.5 * slices.sum(axis=0)
    m1, m2 = 0.9 * first + 0.1 * g, 0.99 * second + 0.01 * g * g
    expected = x - 0.1 * (m1 * 2.0) / (np.sqrt(m2 * 3.0) + 1e-8)
    expected = np.array([capped(row, 1.2) for row in expected])
    step = AdamStep(0.1, 0.9, 0.99, 2.0, 3.0, gradient_weight=0.5, max_norm=1.2)
    for rows in ((0, 2), (2, 3)):
        adam_step(*rows, x, slices, Moments(first, second), step)
    np.testing.assert_allclose(x, expected, rtol=1e-12)


def test_memory_for_as_many_as_work_at_once():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3)).astype(np.float32)
    one = np.ones(3, np.float32)
    with Workers(2) as workers:
        forward = Forward(X, np.arange(41), Scale(0 * one, one, 1.0, False), (2, 3, 4), workers)
        forward.slice_bags = 4
        A, W = rng.standard_normal((4, 4)), rng.standard_normal((2, 3, 4))
        forward.scores(np.arange(40), A.astype(np.float32), W.astype(np.float32))
    assert 1 <= len(forward._free) <= 2
