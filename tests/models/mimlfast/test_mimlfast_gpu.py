"""Mini-batches with tensors against the compiled loops: the same bags in the same order, the same model."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'bagwise[torch]')")

from small_gpu import full, no_room_beyond  # noqa: E402

from bagwise.compute.threads import Workers  # noqa: E402
from bagwise.datasets import make_msra_like  # noqa: E402
from bagwise.models import MIMLFast  # noqa: E402
from bagwise.models._shared import gpu as instances_torch  # noqa: E402
from bagwise.models._shared.gpu import Instances  # noqa: E402
from bagwise.models.mimlfast import gpu, predict  # noqa: E402
from bagwise.models.mimlfast.fit import initial_state, make_plan  # noqa: E402
from bagwise.models.mimlfast.fit_minibatch import BatchTrainer  # noqa: E402
from bagwise.models.mimlfast.gpu import GPUBatches, scaled_instances  # noqa: E402
from bagwise.models.mimlfast.predict import learn_scale, make_forward  # noqa: E402

GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))


@pytest.fixture(scope="module")
def data():
    return make_msra_like(n_bags=220, n_labels=12, n_features=9, random_state=0)


def trainers(data, device, n_sub, workers, n_features=None):
    model = MIMLFast(7, n_sub, solver="minibatch", batch_size=32, max_norm=2.0)
    plan = make_plan(model, len(data.bags), data.bags.X)
    scale = learn_scale(data.bags.X, "auto", plan.norm)
    ids = np.arange(3, 215)
    forward = make_forward(data.bags, data.Y, scale, plan, workers)
    state = initial_state(np.random.default_rng(0), forward.shape, forward.n_inputs)
    kept = {k: np.copy(v) for k, v in state.items()}
    here = BatchTrainer(plan, forward, ids, kept, np.random.default_rng(1), 4)
    store, there_scale = scaled_instances(data.bags.X, "auto", plan.norm, torch.device(device))
    np.testing.assert_allclose(there_scale.mean, scale.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(there_scale.factor, scale.factor, rtol=1e-4)
    there_forward = make_forward(data.bags, data.Y, there_scale, plan, workers, store=store)
    there = BatchTrainer(plan, there_forward, ids, state, np.random.default_rng(1), 4)
    return here, there


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("n_sub", [1, 3])
@pytest.mark.parametrize("resident", [True, False])
def test_an_epoch_is_that_of_the_compiled_loops(data, device, n_sub, resident, monkeypatch):
    monkeypatch.setattr(Instances, "_fits", lambda self: resident)
    with Workers(1, 8) as workers:
        here, there = trainers(data, device, n_sub, workers)
        for _ in range(2):
            here.epoch()
            there.epoch()
        np.testing.assert_allclose(there.losses, here.losses, rtol=2e-3)
        np.testing.assert_allclose(there.state["A"], here.state["A"], atol=5e-3)
        np.testing.assert_allclose(there.state["W"], here.state["W"], atol=5e-3)
        assert there.state["updates"] == here.state["updates"]
        assert np.abs(there.used - here.used).sum() <= 0.02 * here.used.sum()
        some = np.array([5, 0, 219])
        np.testing.assert_allclose(there.scores(some), here.scores(some), atol=0.05)


def test_kernels_of_the_gpu_do_what_the_operations_do(data):
    pytest.importorskip("triton", reason="triton is not installed")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    with Workers(1, 8) as workers:
        _, there = trainers(data, "cuda", 3, workers)
        there.epoch()
    from bagwise.models.mimlfast import gpu_triton

    there = there.steps
    batch = there.layout.batch(torch.ones(1, dtype=torch.int64, device="cuda"), there.forward)
    K, n_all, m = there.vectors.shape
    S = (batch.X @ there.A) @ there.vectors.reshape(-1, m).T
    relevant = there.relevant.index_select(0, batch.bags)
    best, which, source = gpu_triton.best_of_bags(S, batch.offsets, batch.real, K, n_all)
    for found, expected in zip((best, which, source), there._best(S, batch)):
        assert (found == expected)[batch.real > 0].all()
    G, expected = torch.zeros_like(S), torch.zeros_like(S)
    loss = gpu_triton.slopes_to(G, best, which, source, relevant, batch.real, there.harmonic)
    used = gpu_triton.used(which, relevant, batch.real, K)
    counts = batch.real > 0
    slopes, total = there._slopes(best, relevant, counts)
    there._scatter(expected, slopes, which, source, counts)
    torch.testing.assert_close(G, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(loss, total, rtol=1e-5, atol=1e-5)
    assert (used == there._used_of(which, relevant, counts)).all()


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_scores_of_instances_and_bags(data, device, monkeypatch):
    model = MIMLFast(7, 3, max_iter=3, random_state=0, device="cpu").fit(data.bags, data.Y)
    expected = model.instance_scores(data.bags), model.decision_function(data.bags)
    if device == "cpu":
        monkeypatch.setattr(predict, "gpu_for", lambda *_: torch.device("cpu"))
    monkeypatch.setattr(predict, "GPU_CELLS", 5000)
    model.device = "cuda"
    for found, there in zip((model.instance_scores(data.bags), model.decision_function(data.bags)), expected):
        np.testing.assert_allclose(found, there, atol=1e-4 * np.abs(there).max())


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("resident", [True, False])
def test_steps_that_do_not_fit_are_made_in_pieces(data, device, resident, monkeypatch):
    monkeypatch.setattr(Instances, "_fits", lambda self: resident)
    with Workers(1, 8) as workers:
        _, whole = trainers(data, device, 3, workers)
        _, there = trainers(data, device, 3, workers)
        whole.epoch()
        no_room_beyond(monkeypatch, GPUBatches, "_gradient", 9, size=lambda steps: steps.layout.n_bags)
        there.epoch()
        assert there.steps.piece_bags == 7 and there.steps.layout.n_pieces == 5
        monkeypatch.undo()
        for _ in range(2):
            np.testing.assert_allclose(there.losses, whole.losses, rtol=1e-4)
            np.testing.assert_allclose(there.state["A"], whole.state["A"], atol=1e-4)
            np.testing.assert_allclose(there.state["W"], whole.state["W"], atol=1e-4)
            assert there.state["updates"] == whole.state["updates"]
            assert np.abs(there.used - whole.used).sum() <= 0.01 * whole.used.sum()
            whole.epoch()
            there.epoch()
        assert there.steps.layout.n_pieces == 5  # and stays so


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_a_pass_that_breaks_off_goes_on_where_it_was(data, device, monkeypatch):
    if device == "cuda":
        pytest.skip("steps on a GPU are recorded: they do not break off later")
    with Workers(1, 8) as workers:
        _, whole = trainers(data, device, 1, workers)
        _, there = trainers(data, device, 1, workers)
        whole.epoch()
        plain, calls = GPUBatches._gradient, []

        def once(self, number):
            calls.append(int(number))
            if len(calls) == 4:
                raise torch.cuda.OutOfMemoryError
            return plain(self, number)

        monkeypatch.setattr(GPUBatches, "_gradient", once)
        there.epoch()
        assert calls[:6] == [0, 1, 2, 3, 9, 10]  # then thirds of the fourth batch
        np.testing.assert_allclose(there.losses, whole.losses, rtol=1e-4)
        np.testing.assert_allclose(there.state["A"], whole.state["A"], atol=1e-4)

        monkeypatch.setattr(GPUBatches, "_gradient", full)
        with pytest.raises(torch.cuda.OutOfMemoryError, match="does not fit the GPU; use device='cpu'"):
            there.epoch()


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_instances_and_scores_that_do_not_fit(data, device, monkeypatch):
    with Workers(1, 8) as workers:
        _, there = trainers(data, device, 3, workers)
        some = np.arange(0, 220, 3)
        expected = there.scores(some)
        plain = gpu._reduce
        tried = no_room_beyond(monkeypatch, gpu, "_reduce", 100)
        for _ in range(2):
            np.testing.assert_allclose(there.scores(some), expected, atol=1e-4)
        assert 1 <= sum(n > 100 for n in tried) <= 3
        monkeypatch.setattr(gpu, "_reduce", plain)

    model = MIMLFast(7, 3, max_iter=3, random_state=0, device="cpu").fit(data.bags, data.Y)
    expected = model.decision_function(data.bags)
    if device == "cpu":
        monkeypatch.setattr(predict, "gpu_for", lambda *_: torch.device("cpu"))
    no_room_beyond(monkeypatch, gpu, "_reduce", 100)
    np.testing.assert_allclose(
        model.set_params(device="cuda").decision_function(data.bags),
        expected,
        atol=1e-4 * np.abs(expected).max(),
    )

    plain_moved = instances_torch.moved
    monkeypatch.setattr(instances_torch, "moved", full)
    store = Instances(data.bags.X, torch.device(device))
    monkeypatch.setattr(instances_torch, "moved", plain_moved)
    kept = Instances(data.bags.X, torch.device(device))
    assert not store.resident and store.kept is None and kept.resident
    one, other = (torch.cat(list(found.runs([(0, 50), (50, 99)]))) for found in (store, kept))
    torch.testing.assert_close(one, other)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_gpu_and_processor_learn_alike():
    from bagwise.metrics import ranking_loss

    big = make_msra_like(n_bags=6000, n_labels=20, n_features=30, random_state=1)
    losses = []
    for device in ("cpu", "cuda", "cuda"):
        model = MIMLFast(device=device, random_state=0).fit(big.bags[:5000], big.Y[:5000])
        losses.append(ranking_loss(big.Y[5000:], model.decision_function(big.bags[5000:])))
    assert abs(losses[0] - losses[1]) < 0.02  # another number of passes may be best by a hair
    assert losses[1] == losses[2]
