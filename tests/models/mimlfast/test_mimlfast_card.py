"""Mini-batches with tensors against the compiled loops: the same bags in the same order, the same model."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'bagwise[torch]')")

from bagwise.datasets import make_msra_like  # noqa: E402
from bagwise.models import MIMLFast  # noqa: E402
from bagwise.models._shared.instances_torch import Instances  # noqa: E402
from bagwise.models.mimlfast import predict  # noqa: E402
from bagwise.models.mimlfast.batches import BatchTrainer  # noqa: E402
from bagwise.models.mimlfast.card import CardForward, CardTrainer, scaled_instances  # noqa: E402
from bagwise.models.mimlfast.forward import make_forward  # noqa: E402
from bagwise.models.mimlfast.memory import LabelRows  # noqa: E402
from bagwise.models.mimlfast.plan import make_plan  # noqa: E402
from bagwise.models.mimlfast.scale import learn_scale  # noqa: E402
from bagwise.models.mimlfast.train import initial_state  # noqa: E402
from bagwise.parallel import Workers  # noqa: E402

CARD = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no card"))


@pytest.fixture(scope="module")
def data():
    return make_msra_like(n_bags=220, n_labels=12, n_features=9, random_state=0)


def trainers(data, device, n_sub, workers, n_features=None):
    model = MIMLFast(7, n_sub, solver="minibatch", batch_size=32, max_norm=2.0)
    plan = make_plan(model, len(data.bags), data.bags.X)
    scale = learn_scale(data.bags.X, "auto", plan.norm)
    rows, ids = LabelRows.from_matrix(data.Y), np.arange(3, 215)
    forward = make_forward(data.bags, data.Y.shape[1], scale, plan, workers)
    state = initial_state(np.random.default_rng(0), forward)
    kept = {k: np.copy(v) for k, v in state.items()}
    here = BatchTrainer(plan, forward, rows, ids, kept, np.random.default_rng(1), 4)
    store, there_scale = scaled_instances(data.bags.X, "auto", plan.norm, torch.device(device))
    np.testing.assert_allclose(there_scale.mean, scale.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(there_scale.factor, scale.factor, rtol=1e-4)
    there_forward = CardForward(store, data.bags.offsets, there_scale, forward.shape)
    there = CardTrainer(plan, there_forward, rows, ids, state, np.random.default_rng(1), 4)
    return here, there


@pytest.mark.parametrize("device", ["cpu", CARD])
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


def test_loops_of_the_card_do_what_the_operations_do(data):
    pytest.importorskip("triton", reason="triton is not installed")
    if not torch.cuda.is_available():
        pytest.skip("no card")
    with Workers(1, 8) as workers:
        _, there = trainers(data, "cuda", 3, workers)
        there.epoch()
    from bagwise.models.mimlfast import card_triton

    batch = there.layout.batch(torch.ones(1, dtype=torch.int64, device="cuda"), there.forward)
    K, n_all, m = there.V.shape
    S = (batch.X @ there.A) @ there.V.reshape(-1, m).T
    relevant = there.relevant.index_select(0, batch.bags)
    best, which, source = card_triton.best_of_bags(S, batch.offsets, batch.counts, K, n_all)
    for found, expected in zip((best, which, source), there._best(S, batch)):
        assert (found == expected)[batch.counts].all()
    G, expected = torch.zeros_like(S), torch.zeros_like(S)
    loss = card_triton.slopes_to(G, best, which, source, relevant, batch.counts, there.harmonic)
    slopes, total = there._slopes(best, relevant, batch.counts)
    there._scatter(expected, slopes, which, source, batch.counts)
    torch.testing.assert_close(G, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(loss, total, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", CARD])
def test_scores_of_instances_and_bags(data, device, monkeypatch):
    model = MIMLFast(7, 3, max_iter=3, random_state=0, device="cpu").fit(data.bags, data.Y)
    expected = model.instance_scores(data.bags), model.decision_function(data.bags)
    if device == "cpu":
        monkeypatch.setattr(predict, "card_for", lambda *_: torch.device("cpu"))
    monkeypatch.setattr(predict, "CARD_CELLS", 5000)
    model.device = "cuda"
    for found, there in zip((model.instance_scores(data.bags), model.decision_function(data.bags)), expected):
        np.testing.assert_allclose(found, there, atol=1e-4 * np.abs(there).max())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no card")
def test_card_and_processor_learn_alike():
    from bagwise.metrics import ranking_loss

    big = make_msra_like(n_bags=6000, n_labels=20, n_features=30, random_state=1)
    losses = []
    for device in ("cpu", "cuda", "cuda"):
        model = MIMLFast(device=device, random_state=0).fit(big.bags[:5000], big.Y[:5000])
        losses.append(ranking_loss(big.Y[5000:], model.decision_function(big.bags[5000:])))
    assert abs(losses[0] - losses[1]) < 0.02  # another number of passes may be best by a hair
    assert losses[1] == losses[2]
