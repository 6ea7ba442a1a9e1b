"""Minima from one start and from many, against SciPy and plain searches."""

import numpy as np
import pytest
from scipy.optimize import minimize

from bagwise.compute.optim import minimise, minimise_many


def scipy_minimum(function, start, limit):
    bounds = [(None, None) if np.isinf(m) else (-m, m) for m in limit]
    return minimize(function, start, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500})


def test_one_start_is_scipy_in_other_words():
    rng = np.random.default_rng(0)
    A, start, seen = rng.normal(size=(6, 4)), rng.normal(size=(2, 2)), []

    def value_and_gradient(W):
        F = A @ W.ravel() - 1.0
        return float(F @ F), 2.0 * (A.T @ F).reshape(W.shape)

    found = minimise(
        value_and_gradient, start, max_iter=40, tol=1e-9, unit=6.0, watch=lambda: seen.append(len(seen))
    )
    np.testing.assert_allclose(found.x.ravel(), np.linalg.lstsq(A, np.ones(6), rcond=None)[0], atol=1e-5)
    assert found.at_rest and found.history[0] == value_and_gradient(start)[0]
    assert len(seen) == len(found.history) - 1 and found.value == pytest.approx(found.history[-1])
    assert not minimise(value_and_gradient, start, max_iter=1).at_rest
    bounded = minimise(value_and_gradient, np.ones((2, 2)), bounds=[(0.5, None)] * 4)
    assert (bounded.x >= 0.5).all()


# ---------------------------------------------------------------------- many starts


def test_many_starts_find_the_minima_of_scipy():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(6, 12, 5))
    H, c = np.einsum("tij,tik->tjk", A, A), rng.normal(size=(6, 5)) * 5.0  # a bowl for every start
    limit = np.array([np.inf, np.inf, 0.2, 0.1, np.inf])

    def bowls(x, which):
        Hx = np.einsum("tjk,tk->tj", H[which], x)
        return 0.5 * (x * Hx).sum(axis=1) - (x * c[which]).sum(axis=1), Hx - c[which]

    found = minimise_many(bowls, rng.normal(size=(6, 5)), limit, max_iter=200, tol=1e-14)
    assert found.at_rest.all() and (np.abs(found.x) <= limit).all()
    for t in range(6):
        one = scipy_minimum(lambda x: 0.5 * x @ H[t] @ x - c[t] @ x, np.zeros(5), limit)  # noqa: B023
        assert found.values[t] == pytest.approx(one.fun, rel=1e-6)
        np.testing.assert_allclose(found.x[t], one.x, atol=1e-3)


def test_many_starts_in_a_bent_valley():
    def rosenbrock(x, which):
        a, b = x[:, 0], x[:, 1]
        value = (1 - a) ** 2 + 100 * (b - a * a) ** 2
        return value, np.column_stack([-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a)])

    starts = np.random.default_rng(0).uniform(-2, 2, (20, 2))
    found = minimise_many(rosenbrock, starts, np.full(2, np.inf), max_iter=500, tol=1e-15)
    np.testing.assert_allclose(found.x, 1.0, atol=1e-4)
    assert (minimise_many(rosenbrock, starts, np.full(2, np.inf), max_iter=3, tol=0.0).n_iter == 3).all()
    alone = minimise_many(rosenbrock, starts[4:5], np.full(2, np.inf), max_iter=500, tol=1e-15)
    np.testing.assert_allclose(alone.x[0], found.x[4], atol=1e-12)  # starts do not know of each other


def plain_descent(function, x, limit, n_iter):
    """L-BFGS of one start with the inverse Hessian written out as a matrix, within limits."""
    kept = []
    (value,), (g,) = function(x[None], None)
    for _ in range(n_iter):
        wanted = np.where(((x >= limit) & (g < 0)) | ((x <= -limit) & (g > 0)), 0.0, g)
        H = np.eye(len(x)) / max(np.linalg.norm(wanted), 1.0)
        for t, (s, d) in enumerate(kept[-10:]):
            if t == 0:
                H = np.eye(len(x)) * (kept[-1][0] @ kept[-1][1]) / (kept[-1][1] @ kept[-1][1])
            left = np.eye(len(x)) - np.outer(s, d) / (s @ d)
            H = left @ H @ left.T + np.outer(s, s) / (s @ d)
        move, step = np.where(wanted == 0.0, 0.0, -H @ wanted), 1.0
        assert move @ wanted < 0
        while True:
            trial = np.clip(x + step * move, -limit, limit)
            (new,), (new_g,) = function(trial[None], None)
            slope = g @ (trial - x)
            if new <= value + 1e-4 * slope:
                break
            step *= np.clip(-0.5 * slope / (new - value - slope), 0.1, 0.5)
        if (trial - x) @ (new_g - g) > 0:
            kept.append((trial - x, new_g - g))
        x, value, g = trial, new, new_g
    return x


@pytest.mark.parametrize("n_iter", [1, 2, 9, 16])
def test_steps_are_those_of_a_plain_search(n_iter):
    rng = np.random.default_rng(2)
    wide = np.array([1.0, 3.0, 10.0, 30.0, 0.5])

    def bent(x, which):
        u = x - 0.3 * np.roll(x, 1, axis=1) ** 2 - 1.0
        inner = 2.0 * wide * u
        back = np.roll(inner * -0.6 * np.roll(x, 1, axis=1), -1, axis=1)
        return (wide * u**2).sum(axis=1), inner + back

    starts = rng.uniform(-0.5, 0.5, (4, 5))
    limit = np.array([np.inf, 1.2, np.inf, 1.0, np.inf])
    found = minimise_many(bent, starts, limit, max_iter=n_iter, tol=0.0)
    for start, x in zip(starts, found.x):
        np.testing.assert_allclose(x, plain_descent(bent, start, limit, n_iter), rtol=1e-6, atol=1e-8)
    assert (found.n_iter == n_iter).all()


def test_a_start_without_a_value_stays_where_it_is():
    def hole(x, which):
        value = np.where(x[:, 0] < 0, np.nan, (x**2).sum(axis=1))
        return value, 2.0 * x

    found = minimise_many(
        hole, np.array([[-1.0, 2.0], [3.0, 4.0]]), np.full(2, np.inf), max_iter=50, tol=1e-12
    )
    np.testing.assert_array_equal(found.x[0], [-1.0, 2.0])
    assert found.n_iter[0] == 0 and not np.isfinite(found.values[0])
    np.testing.assert_allclose(found.x[1], 0.0, atol=1e-5)
