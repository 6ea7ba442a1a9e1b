"""What the machines of several labels share: files, blocks, landmarks, the solver."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.svm import SVC
from toy_bags import miml, rbf

import bagwise
from bagwise import Bags
from bagwise.models import CSMISVM, CSSVM, DMIMLSVM, KISAR, M3MIML, MIMLBoost
from bagwise.models.svm.kernels_landmarks import Coupled, landmark_span, maximise
from bagwise.models.svm.miml_boost import balanced_box, best_intercept, weighted_machine

FAMILY = [
    MIMLBoost(4, gamma=2.0, random_state=0),
    DMIMLSVM(),
    DMIMLSVM(kernel="linear"),
    M3MIML(C=8.0),
    M3MIML(kernel="linear"),
    KISAR(20, random_state=0),
    KISAR(20, instance_rule="prototype", random_state=0),
    CSSVM(),
    CSMISVM(),
]


# ---------------------------------------------------------------------- what all share


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_saved_and_loaded(model, tmp_path):
    bags, Y = miml()
    Y = np.column_stack([Y, np.ones(len(Y), int), np.zeros(len(Y), int)])
    S = model.fit(bags, Y).decision_function(bags)
    expected = np.tile([1.0, -1.0], (len(Y), 1))
    if isinstance(model, MIMLBoost):  # the votes of all machines on all instances
        expected *= model.votes_.sum() * bags.sizes[:, None]
    np.testing.assert_allclose(S[:, 3:], expected)
    bagwise.save(model, tmp_path / "model.skops")
    again = bagwise.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.decision_function(bags), S)
    np.testing.assert_array_equal(again.instance_scores(bags), model.instance_scores(bags))


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_nothing_but_constant_labels(model):
    bags, Y = miml(10)
    Y[:] = [1, 0, 1]
    sizes = bags.sizes[:, None] if isinstance(model, MIMLBoost) else 1.0
    np.testing.assert_array_equal(model.fit(bags, Y).decision_function(bags), np.where(Y, 1.0, -1.0) * sizes)
    assert model.instance_scores(bags).shape == (bags.n_instances, 3)


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_blocks_change_nothing(model, monkeypatch):
    bags, Y = miml()
    model.fit(bags, Y)
    whole, instances = model.decision_function(bags), model.instance_scores(bags)
    for room in ("base", "cs_svm"):
        monkeypatch.setattr(f"bagwise.models.svm.{room}.CELLS", 60)
    np.testing.assert_allclose(model.decision_function(bags), whole, atol=1e-10)
    np.testing.assert_allclose(model.instance_scores(bags), instances, atol=1e-10)


# ---------------------------------------------------------------------- landmarks and the solver


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_landmarks_span_the_kernel(kernel):
    X = np.random.default_rng(0).normal(size=(40, 6))
    X[7] = X[3]
    K = rbf(X, X, 0.3) if kernel == "rbf" else X @ X.T
    span = landmark_span(X, kernel, 0.3, 100, "")
    assert len(span.rows) == (39 if kernel == "rbf" else 6) and span.error < 1e-8
    np.testing.assert_allclose((span.U * span.eigenvalues) @ span.U.T, K, atol=1e-6)
    np.testing.assert_allclose(span.U.T @ span.U, np.eye(span.U.shape[1]), atol=1e-6)
    new = np.random.default_rng(1).normal(size=(5, 6))
    c = np.random.default_rng(2).normal(size=span.U.shape[1]) * span.eigenvalues
    at = rbf(new, X, 0.3) if kernel == "rbf" else new @ X.T
    beside = rbf(new, X[span.rows], 0.3) if kernel == "rbf" else new @ X[span.rows].T
    # a function with values U c at X is K a there, and k(x, X) a elsewhere
    a = np.linalg.lstsq(K, span.U @ c, rcond=1e-12)[0]
    np.testing.assert_allclose(beside @ (span.to_landmarks @ c), at @ a, atol=1e-4)


def test_few_landmarks_are_the_nystrom_approximation():
    X = np.random.default_rng(0).normal(size=(60, 3))
    span = landmark_span(X, "rbf", 0.2, 10, "")
    K, C = rbf(X, X, 0.2), rbf(X, X[span.rows], 0.2)
    nystrom = C @ np.linalg.solve(C[span.rows], C.T)
    np.testing.assert_allclose((span.U * span.eigenvalues) @ span.U.T, nystrom, atol=1e-7)
    np.testing.assert_allclose(span.error, (K - nystrom).diagonal().max(), atol=1e-9)


def test_no_room_for_the_kernel_is_said_with_advice():
    bags, Y = miml()
    wide = Bags(bags.X, bags.offsets)
    from bagwise.models.svm import kernels_landmarks as landmarks

    def small(n_bytes, what, advice):
        raise MemoryError(f"{what}; {advice}")

    patch = pytest.MonkeyPatch()
    patch.setattr(landmarks, "check_memory", small)
    try:
        for model in (MIMLBoost(), DMIMLSVM()):
            with pytest.raises(MemoryError, match=r"instances and .* landmarks; lower n_landmarks, or use"):
                model.fit(wide, Y)
    finally:
        patch.undo()


@pytest.mark.parametrize("seed", range(3))
def test_weighted_machine_is_that_of_libsvm(seed):
    rng = np.random.default_rng(seed)
    X, places = rng.normal(size=(30, 3)), np.array([0.0, 0.5, 1.0])
    T = np.where(rng.random((30, 3)) < 0.4, 1.0, -1.0)
    costs = rng.integers(0, 3, size=T.shape).astype(float)
    span = landmark_span(X, "rbf", 0.7, 100, "")
    P = np.exp(-0.7 * (places[:, None] - places) ** 2)
    problem = Coupled.of(span, P)
    found, b = weighted_machine(problem, T, costs, tol=1e-6, max_iter=5000)
    rows = np.array([[*x, p] for x in X for p in places])
    used = np.flatnonzero(costs.ravel())
    svm = SVC(gamma=0.7, C=1.0, tol=1e-7).fit(rows[used], T.ravel()[used], sample_weight=costs.ravel()[used])
    np.testing.assert_allclose((found.values + b).ravel(), svm.decision_function(rows), atol=3e-3)
    assert 0 <= found.gap <= 1e-6


def test_the_solver_says_when_it_stops_early():
    bags, Y = miml()
    with pytest.warns(UserWarning, match="max_iter=1 "):
        DMIMLSVM(max_iter=1, tol=1e-9).fit(bags, Y)
    with pytest.warns(UserWarning, match="max_iter=1 "):
        MIMLBoost(1, max_iter=1, tol=1e-9, random_state=0).fit(bags, Y)


def test_best_intercept_and_balanced_box_against_a_grid():
    rng = np.random.default_rng(0)
    for _ in range(20):
        F, T = rng.normal(size=9), np.where(rng.random(9) < 0.5, 1.0, -1.0)
        T[:2] = [1.0, -1.0]
        costs = rng.integers(1, 4, 9).astype(float)

        def loss(b, F=F, T=T, costs=costs):
            return (costs * np.maximum(0, 1 - T * (F + b))).sum()

        best = min(loss(b) for b in T - F)  # piecewise linear: lowest at a kink
        np.testing.assert_allclose(loss(best_intercept(F, T, costs)), best)
        low, high = np.where(T > 0, 0, -costs), np.where(T > 0, costs, 0)
        B = balanced_box(3 * F, low, high)
        assert abs(B.sum()) < 1e-9 and (low - 1e-12 <= B).all() and (high + 1e-12 >= B).all()
        sums = {"type": "eq", "fun": lambda z: z.sum()}
        nearest = minimize(
            lambda z, F=F: ((z - 3 * F) ** 2).sum(),
            np.zeros(9),
            bounds=list(zip(low, high)),
            constraints=sums,
            method="SLSQP",
            options={"ftol": 1e-12, "maxiter": 500},
        )
        np.testing.assert_allclose(B, nearest.x, atol=1e-4)


def test_maximise_needs_no_start_and_goes_on_from_one():
    bags, Y = miml(20)
    span = landmark_span(bags.X, "rbf", 0.3, 500, "")
    problem, T = Coupled.of(span, np.eye(3)), np.where(Y[bags.index] > 0, 1.0, -1.0)

    def primal(F, penalty):
        return penalty + float(np.maximum(0, 1 - T * F).sum())

    def solve(start):
        low, high = np.minimum(T, 0), np.maximum(T, 0)
        box = {"project": lambda B: np.clip(B, low, high), "primal": primal}
        return maximise(problem, T, **box, balanced=False, start=start, tol=1e-6, max_iter=5000)

    first = solve(None)
    again = solve(first.state)
    assert again.n_iter <= first.n_iter
    np.testing.assert_allclose(again.objective, first.objective, rtol=1e-5)
