"""Steps of DeepMIML: the optimiser beside torch's own, batches that do not fit the GPU, the last passes."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'bagwise[torch]')")

from small_gpu import no_room_beyond  # noqa: E402

from bagwise.checks import sample_bags  # noqa: E402
from bagwise.compute.scaling import learn_scaling  # noqa: E402
from bagwise.models import DeepMIML  # noqa: E402
from bagwise.models.deep import fit_members as training  # noqa: E402
from bagwise.models.deep.fit_members import AdamW, Member, Settings, catching_up  # noqa: E402
from bagwise.models.deep.network import Plan, weights_of  # noqa: E402
from bagwise.models.deep.predict import Feed  # noqa: E402

CPU = torch.device("cpu")
SETTINGS = Settings("bce", 6e-3, 1e-2, 8, 4, 5, 0.5, False)


def layers():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 2))


def data_and_feed(n_bags=24):
    bags, Y = sample_bags(n_bags=n_bags)
    return bags, Y, Feed(bags, learn_scaling(bags.X, "standard"), CPU, Y)


def trained(member, feed, bags, held_out=()):
    """What a member comes to by passes over bags in memory."""
    while not member.done:
        member.learn(feed, bags)
        member.end_pass(feed, held_out)
    return member.trained()


def plan_for(bags, Y, dropout=0.0):
    return Plan("attention", "softmax", bags.n_features, Y.shape[1], 16, 2, dropout)


@pytest.mark.parametrize("scale", [1.0, 1e3])  # gradients of a length below and above the limit
def test_steps_are_those_of_torch(scale):
    ours, theirs = layers(), layers()
    mine = AdamW(ours, 0.01, 0.1)
    plain = torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=0.1)
    X = torch.randn(6, 5)
    for _ in range(20):
        mine.zero()
        plain.zero_grad()
        for network in (ours, theirs):
            (scale * network(X)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 5.0)
        mine.step()
        plain.step()
    for got, wanted in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    state = plain.state_dict()["state"]
    for k, moments in enumerate(mine.moments()):
        assert moments["step"] == 20 and float(state[k]["step"]) == 20
        for name in ("exp_avg", "exp_avg_sq"):
            np.testing.assert_allclose(moments[name], state[k][name].numpy(), rtol=1e-3, atol=1e-6)


def test_what_torch_remembered_is_remembered():
    """Moments of a model that was saved when torch's own optimiser made them have the same shape."""
    ours, theirs = layers(), layers()
    plain = torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=0.1)
    X = torch.randn(6, 5)
    for _ in range(3):
        plain.zero_grad()
        theirs(X).square().mean().backward()
        plain.step()
    state = plain.state_dict()["state"]
    moments = [{name: t.numpy().copy() for name, t in state[k].items()} for k in sorted(state)]
    ours.load_state_dict(theirs.state_dict())
    mine = AdamW(ours, 0.01, 0.1)
    mine.remember(moments)
    mine.zero()
    plain.zero_grad()
    for network in (ours, theirs):
        network(X).square().mean().backward()
    mine.step()
    plain.step()
    for got, wanted in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_batches_that_do_not_fit_are_cut_and_gradients_add_up(monkeypatch, weighted):
    bags, Y = sample_bags(n_bags=9)
    weights = np.linspace(0.5, 2.0, 9) if weighted else None
    feed = Feed(bags, learn_scaling(bags.X, "standard"), CPU, Y, weights)
    batch = next(feed.batches(np.arange(9), 9))
    members = [Member(plan_for(bags, Y), SETTINGS, CPU, 0) for _ in range(2)]
    training._step(members[0].network, members[0].optimiser, batch, SETTINGS)
    tried = no_room_beyond(monkeypatch, training, "_losses", 3, size=lambda batch: len(batch.Y))
    training._step(members[1].network, members[1].optimiser, batch, SETTINGS)
    assert tried[0] == 9 and max(tried[-4:]) <= 3
    for one, other in zip(members[0].network.parameters(), members[1].network.parameters()):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-6)
    no_room_beyond(monkeypatch, training, "_losses", 0, size=lambda batch: len(batch.Y))
    with pytest.raises(torch.cuda.OutOfMemoryError):
        training._step(members[1].network, members[1].optimiser, batch, SETTINGS)


def test_members_catch_up_from_their_best_weights():
    bags, Y, feed = data_and_feed(40)
    plan = plan_for(bags, Y, dropout=0.5)
    settings = SETTINGS._replace(max_epochs=12)
    found = trained(Member(plan, settings, CPU, 5), feed, np.arange(32), np.arange(32, 40))
    member = catching_up(plan, settings, CPU, 5, found)
    for name, value in weights_of(member.network).items():
        np.testing.assert_array_equal(value, found.weights[name])
    last = trained(member, feed, np.arange(40))
    assert member.passes == -(-found.epoch // 5) and last.history == []
    assert any((last.weights[name] != value).any() for name, value in found.weights.items())


def test_refit_changes_weights_alone():
    bags, Y = sample_bags(n_bags=60)
    few = {"n_members": 1, "hidden": 16, "max_epochs": 6, "random_state": 0}
    with_it, without = (DeepMIML(**few, refit=refit).fit(bags, Y) for refit in (True, False))
    assert with_it.epochs_ == without.epochs_
    np.testing.assert_array_equal(with_it.histories_[0], without.histories_[0])
    np.testing.assert_array_equal(with_it.calibration_slope_, without.calibration_slope_)
    assert (with_it.members_[0]["encoder.0.weight"] != without.members_[0]["encoder.0.weight"]).any()
