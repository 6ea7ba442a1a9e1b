"""Value and gradient by tensors against the compiled loops, and whole fits; on a GPU where there is one."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'bagwise[torch]')")

from small_gpu import full, no_room_beyond  # noqa: E402

from bagwise import Bags  # noqa: E402
from bagwise.base.blocks import Block  # noqa: E402
from bagwise.compute.devices import gpu_there  # noqa: E402
from bagwise.compute.scaling import apply_scaling, learn_scaling  # noqa: E402
from bagwise.datasets import make_miml  # noqa: E402
from bagwise.models import ORedLogisticRegression  # noqa: E402
from bagwise.models._shared import gpu as instances_torch  # noqa: E402
from bagwise.models._shared.gpu import Instances  # noqa: E402
from bagwise.models.ored import fit as fit_room  # noqa: E402
from bagwise.models.ored import gpu as gpu_room  # noqa: E402
from bagwise.models.ored.fit import Setup, Treatment, likelihood_of  # noqa: E402
from bagwise.models.ored.gpu import GPUBlocks, logits_on_gpu  # noqa: E402

GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))
DEVICES = pytest.mark.parametrize("device", ["cpu", GPU])


def problem(seed=0, n_bags=70, n_classes=5, background=False, most=9, confident=1.0):
    """A setup and a block: impossible sets, weights of 0, an empty bag, sets of every size."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most, n_bags)
    sizes[7] = 0
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = confident * rng.normal(size=(offsets[-1], 6)) + 50.0 * np.arange(6)
    Y = np.zeros((n_bags, n_classes), dtype=np.int8)
    for b in range(n_bags):
        Y[b, rng.integers(0, n_classes, rng.integers(0 if background else 1, sizes[b] + 2))] = 1
    Y[7], Y[11] = 0, 1  # more labels than instances, perhaps
    weights = rng.random(n_bags) + 0.1
    weights[3] = 0.0
    how = Treatment(background, 16 + (background == "anywhere"), "candidates", 0.0, INFERENCE)
    how.inference["max_labels"] = how.max_labels
    classes = np.arange(n_classes + bool(background))
    setup = Setup(how, classes, learn_scaling(X, "standard"), None, True)
    return setup, Block(Bags(X, offsets), Y, weights)


INFERENCE = {"method": "auto", "max_labels": 16, "n_threads": 1}


def on_device(setup, block, device):
    store = Instances(block.bags.X, torch.device(device), setup.scaling)
    return likelihood_of(setup, store, block)


def same(setup, block, device, tolerance=2e-5, scale=0.7):
    rng = np.random.default_rng(1)
    here = likelihood_of(setup, None, block)
    there = on_device(setup, block, device)
    W = scale * rng.normal(size=here.shape)
    expected, G = here.value_and_gradient(W)
    value, gradient = there.value_and_gradient(W)
    assert value == pytest.approx(expected, rel=tolerance)
    np.testing.assert_allclose(gradient, G, atol=tolerance * max(np.abs(G).max(), 1.0))
    return there, W, value, gradient


@DEVICES
@pytest.mark.parametrize("background", [False, "empty", "anywhere"])
def test_value_and_gradient(background, device):
    same(*problem(background=background), device)


@DEVICES
def test_sets_of_many_labels_and_confident_instances_are_left_to_the_processor(device, monkeypatch):
    monkeypatch.setattr(gpu_room, "MOST_LABELS", 3)
    setup, block = problem(2, most=14, n_classes=7)
    there, W, _, _ = same(setup, block, device, scale=12.0)
    (run,) = there._runs
    V, intercept = there.folded.inner(W)
    logits = torch.as_tensor(next(there.store.runs([run.rows])).cpu().numpy() @ V.T + intercept).to(device)
    _, left = gpu_room.union_residuals(logits.float(), run.groups, torch.empty_like(logits).float())
    assert len(left) and len(run.many)


@DEVICES
def test_known_instances(device):
    setup, block = problem(3, background="anywhere")
    known = np.full(block.bags.n_instances, -1)
    labels = np.argmax(block.Y[block.bags.index], axis=1)
    known[::3] = np.where(block.Y[block.bags.index].any(axis=1), labels, -1)[::3]
    same(setup, block._replace(known=known), device)


@DEVICES
def test_runs_that_do_not_fit_are_halved(device, monkeypatch):
    setup, block = problem(4)
    there, W, value, gradient = same(setup, block, device)
    assert len(there._runs) == 1
    no_room_beyond(monkeypatch, gpu_room.Run, "sums", 20, size=lambda run: run.b - run.a)
    again, G = there.value_and_gradient(W)
    assert again == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(G, gradient, atol=1e-4)
    first = there._runs[0]
    assert (first.a, first.b) == (0, 17) and there._runs[-1].b == 70
    assert there.value_and_gradient(W)[0] == again  # and stay so
    monkeypatch.setattr(gpu_room.Run, "sums", full)
    with pytest.raises(torch.cuda.OutOfMemoryError, match="does not fit the GPU"):
        there.value_and_gradient(W)


@DEVICES
def test_streamed_instances_are_those_kept(device, monkeypatch):
    setup, block = problem(5)
    kept = on_device(setup, block, device)
    monkeypatch.setattr(Instances, "_fits", lambda self: False)
    monkeypatch.setattr(gpu_room, "_LOGITS", 300)
    streamed = on_device(setup, block, device)
    assert not streamed.store.resident and len(streamed._runs) > 3
    W = np.random.default_rng(1).normal(size=kept.shape)
    value, G = streamed.value_and_gradient(W)
    assert value == pytest.approx(kept.value_and_gradient(W)[0], rel=1e-6)
    np.testing.assert_allclose(G, kept.value_and_gradient(W)[1], atol=1e-4)


@DEVICES
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scalings_of_instances_on_the_device(device, dtype, monkeypatch):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(40, 3)) * [1.0, 5.0, 0.0] + [1e4, 0.0, 3.0]).astype(dtype)
    weights = np.where(np.arange(40) % 4 == 0, 0.0, rng.random(40))
    for resident in (True, False):
        monkeypatch.setattr(instances_torch, "_ROWS", 30)
        store = Instances(X, torch.device(device), resident=resident)
        for given in (None, weights):
            found, expected = store.scaling("standard", given), learn_scaling(X, "standard", given)
            np.testing.assert_allclose(found.shift, expected.shift, rtol=1e-5)
            np.testing.assert_allclose(
                found.factor, expected.factor, rtol=1e-3 if dtype == np.float32 else 1e-5
            )
            W = rng.normal(size=(2, 4))
            V, b = store.folded(found).inner(W)
            kept = torch.cat(list(store.runs([(0, 7), (7, 40)]))).cpu().numpy()
            scaled = apply_scaling(X.astype(np.float64), found) @ W[:, :-1].T + W[:, -1]
            np.testing.assert_allclose(kept @ V.T + b, scaled, atol=5e-3 if dtype == np.float32 else 1e-4)


@DEVICES
def test_a_whole_fit_is_that_of_the_processor(device, tmp_path, monkeypatch):
    data = make_miml(n_bags=240, random_state=0)
    here = ORedLogisticRegression(device="cpu").fit(data.bags, data.Y)
    if device == "cpu":  # torch without a GPU
        monkeypatch.setattr(fit_room, "gpu_for", lambda *_: torch.device("cpu"))
    there = ORedLogisticRegression(device="cuda").fit(data.bags, data.Y)
    scores = here.decision_function(data.bags)
    np.testing.assert_allclose(there.decision_function(data.bags), scores, atol=2e-3 * np.abs(scores).max())
    agree = there.predict(data.bags) == here.predict(data.bags)
    assert agree[np.abs(here.predict_proba(data.bags) - 0.5) > 1e-2].all()
    assert there.background_ == here.background_
    again = ORedLogisticRegression(device="cuda").fit(data.bags, data.Y)
    assert (again.coef_ == there.coef_).all()
    scores_there = there.decision_function(data.bags)
    pytest.importorskip("skops", reason="skops is not installed")
    from bagwise import load, save

    save(there, tmp_path / "model.bagwise")
    monkeypatch.undo()
    loaded = load(tmp_path / "model.bagwise")
    assert loaded.device == ("cuda" if gpu_there() else "auto")  # where there is no GPU, it does without
    loaded.set_params(device="cpu")
    np.testing.assert_allclose(loaded.decision_function(data.bags), scores_there, atol=1e-4)


def test_blocks_of_most_bags_keep_the_instances():
    _, block = problem()
    blocks = GPUBlocks(block, torch.device("cpu"))
    train = blocks.take(np.arange(60))
    assert train.store is blocks.store and train.block.weights[60:].sum() == 0
    few = blocks.take(np.arange(60, 70))
    assert few.kind == "memory" and few.n_bags == 10


@DEVICES
def test_logits(device):
    rng = np.random.default_rng(0)
    X, coef, intercept = rng.normal(size=(30, 4)), rng.normal(size=(3, 4)), rng.normal(size=3)
    found = logits_on_gpu(X, coef, intercept, torch.device(device))
    np.testing.assert_allclose(found, X @ coef.T + intercept, rtol=1e-6)
