"""MIML-GP with tensors against the same with arrays; on a GPU where there is one."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'bagwise[torch]')")

from small_gpu import full  # noqa: E402

from bagwise import Bags  # noqa: E402
from bagwise.models import MIMLGP  # noqa: E402
from bagwise.models.gp import fit, kernels_gaussian  # noqa: E402
from bagwise.models.gp import gpu as gpu_steps  # noqa: E402
from bagwise.models.gp.fit_features import _pivoted  # noqa: E402
from bagwise.models.gp.fit_mode import Problem  # noqa: E402
from bagwise.models.gp.gpu import GpuProblem, GpuRows, columns_on_gpu  # noqa: E402
from bagwise.models.gp.kernels import CollectiveLikelihood  # noqa: E402
from bagwise.models.gp.kernels_gaussian import InstanceKernel  # noqa: E402

GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))
DEVICES = pytest.mark.parametrize("device", ["cpu", GPU])


def generated(n_bags=60, n_labels=4, seed=0):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 5, n_bags))])
    bags = Bags(rng.normal(size=(offsets[-1], 3)) + 10.0, offsets)
    means = np.stack([bags.X[a:b].mean(axis=0) for a, b in zip(offsets[:-1], offsets[1:])]) - 10.0
    Y = (means @ rng.normal(size=(3, n_labels)) + 0.3 * rng.normal(size=(n_bags, n_labels)) > 0).astype(int)
    return bags, Y


@DEVICES
def test_sums_and_systems(device):
    rng = np.random.default_rng(0)
    Z, Y = rng.normal(size=(50, 6)), (rng.random((50, 3)) < 0.4).astype(int)
    L = rng.normal(size=(3, 3))
    L = L @ L.T
    here, there = Problem.of(Z, CollectiveLikelihood(Y)), GpuProblem(Z, Y, torch.device(device))
    w = rng.normal(size=(6, 3))
    one, other = here.at(w), there.at(w)
    assert other.value == pytest.approx(one.value, rel=1e-12)
    assert_allclose(other.pull, one.pull, rtol=1e-10)
    assert_allclose(there.values([w, 2 * w]), here.values([w, 2 * w]))
    assert_allclose(there.grams(other), here.grams(one), atol=1e-10)
    assert_allclose(there.diagonals(other), here.diagonals(one), atol=1e-10)
    V = rng.normal(size=(2, 6, 3))
    for single, tolerance in ((True, 1e-4), (False, 1e-10)):
        assert_allclose(there.bend(other, V, single), here.bend(one, V, single), atol=tolerance)
    assert_allclose(there.parts.only().gradient(w), here.parts.only().gradient(w), atol=1e-12)
    inverses = [problem.preconditioner(point, L) for problem, point in ((here, one), (there, other))]
    assert inverses[1][1] == pytest.approx(inverses[0][1])
    solved = [
        problem.solve(point, L, V, found[0], 1e-4)
        for (problem, point), found in zip(((here, one), (there, other)), inverses)
    ]
    assert_allclose(solved[1], solved[0], atol=1e-3)
    for probes in (None, np.sign(rng.normal(size=(2, 6, 3)))):
        for found, expected in zip(there.traces(other, L, probes), here.traces(one, L, probes)):
            if expected is not None:
                assert_allclose(found, expected, atol=1e-4)


@DEVICES
def test_kernels_and_pivots(device, monkeypatch):
    bags, _ = generated()
    where = torch.device(device)
    kernel = InstanceKernel("gaussian", 2.0, 0.1)
    given = bags.X, np.asarray(bags.offsets)
    P, found = _pivoted(kernel, *given, 0.99, None)
    Q, there = _pivoted(kernel, *given, 0.99, None, gpu=where)
    assert_allclose(Q @ Q.T, P @ P.T, atol=1e-8)
    assert_allclose(there.offsets, found.offsets)
    monkeypatch.setattr(kernels_gaussian, "gpu_for", lambda device, work: where if device == "cuda" else None)
    on_gpu = InstanceKernel("gaussian", 2.0, 0.1, "cuda")
    assert_allclose(on_gpu.gram(*given), kernel.gram(*given), atol=1e-12)
    some = bags[5:20]
    few = some.X, np.asarray(some.offsets)
    assert_allclose(on_gpu.between(*given, *few), kernel.between(*given, *few), atol=1e-12)


@DEVICES
@pytest.mark.parametrize("settings", [{}, {"factor": "pivoted", "exact_limit": 0}, {"kernel": "linear"}])
def test_a_whole_fit_is_that_of_the_processor(device, settings, monkeypatch):
    bags, Y = generated(90)
    if "factor" in settings:
        monkeypatch.setattr("bagwise.models.gp.fit_mode.DENSE_LIMIT", 0)
    settings = {"width": 2.0, "tol": 1e-2, **settings}
    here = MIMLGP(device="cpu", **settings).fit(bags, Y)
    if device == "cpu":
        for room in (kernels_gaussian, fit):
            monkeypatch.setattr(
                room, "gpu_for", lambda name, work: torch.device("cpu") if name == "cuda" else None
            )
    there = MIMLGP(device="cuda", **settings).fit(bags, Y)
    assert there.n_iter_ == here.n_iter_
    scores = here.decision_function(bags)
    assert_allclose(there.decision_function(bags), scores, atol=2e-3 * np.abs(scores).max())
    assert_allclose(there.instance_scores(bags), here.instance_scores(bags), atol=5e-3 * np.abs(scores).max())
    again = MIMLGP(device="cuda", **settings).fit(bags, Y)
    assert (again.weights_ == there.weights_).all()


@DEVICES
def test_passes_that_do_not_fit_go_over_fewer_rows(device, monkeypatch):
    rng = np.random.default_rng(0)
    Z, Y = rng.normal(size=(50, 6)), (rng.random((50, 3)) < 0.4).astype(int)
    w, V = rng.normal(size=(6, 3)), rng.normal(size=(2, 6, 3))
    here, there = Problem.of(Z, CollectiveLikelihood(Y)), GpuProblem(Z, Y, torch.device(device))
    plain, tried = GpuRows.pieces, []

    def tight(self, step, single=False):
        for rows, part in plain(self, step, single):
            tried.append(len(part))
            if len(part) > 15:
                raise torch.cuda.OutOfMemoryError
            yield rows, part

    monkeypatch.setattr(GpuRows, "pieces", tight)
    one, other = here.at(w), there.at(w)
    assert other.value == pytest.approx(one.value, rel=1e-12)
    assert_allclose(other.pull, one.pull, rtol=1e-10)
    assert_allclose(there.grams(other), here.grams(one), atol=1e-10)
    assert_allclose(there.diagonals(other), here.diagonals(one), atol=1e-10)
    assert_allclose(there.bend(other, V, single=False), here.bend(one, V, single=False), atol=1e-10)
    assert there.rows.step == 12 and sum(n > 15 for n in tried) == 2  # 50 and 25; smaller ones from then on
    monkeypatch.setattr(GpuRows, "pieces", full)
    with pytest.raises(torch.cuda.OutOfMemoryError, match="use device='cpu'"):
        there.at(2 * w)


@DEVICES
def test_kernels_of_a_bag_that_do_not_fit_are_made_with_fewer_instances(device, monkeypatch):
    bags, _ = generated()
    given = bags.X, np.asarray(bags.offsets), 0.3, 0.1, torch.device(device)
    expected = columns_on_gpu(*given)(7)
    plain, tried = torch.addmm, []

    def tight(lengths, left, right, **how):
        tried.append(len(left))
        return full() if len(left) > 40 else plain(lengths, left, right, **how)

    monkeypatch.setattr(torch, "addmm", tight)
    column = columns_on_gpu(*given)
    for _ in range(2):
        torch.testing.assert_close(column(7), expected)
    assert sum(n > 40 for n in tried) == 2


@DEVICES
@pytest.mark.parametrize("what", ["features", "systems", "factor", "all"])
def test_a_whole_fit_on_a_gpu_that_is_too_small(device, what, monkeypatch):
    bags, Y = generated(90)
    monkeypatch.setattr("bagwise.models.gp.fit_mode.DENSE_LIMIT", 0)
    settings = {"width": 2.0, "tol": 1e-2, "factor": "pivoted", "exact_limit": 0}
    here = MIMLGP(device="cpu", **settings).fit(bags, Y)
    if device == "cpu":
        for room in (kernels_gaussian, fit):
            monkeypatch.setattr(
                room, "gpu_for", lambda name, work: torch.device("cpu") if name == "cuda" else None
            )
    if what in ("features", "all"):  # they stay in memory, and follow run by run
        monkeypatch.setattr(GpuRows, "_kept", lambda *_: None)
        monkeypatch.setattr(gpu_steps, "_STREAMED", 2000)
    if what in ("systems", "all"):
        monkeypatch.setattr(gpu_steps, "block_preconditioner", full)
        monkeypatch.setattr(gpu_steps, "block_traces", full)
        monkeypatch.setattr(gpu_steps, "solve_many", full)
    if what in ("factor", "all"):
        monkeypatch.setattr(gpu_steps, "_room", full)
    there = MIMLGP(device="cuda", **settings).fit(bags, Y)
    assert there.n_iter_ == here.n_iter_
    scores = here.decision_function(bags)
    assert_allclose(there.decision_function(bags), scores, atol=2e-3 * np.abs(scores).max())
