"""DeepMIML on shards and on data that come piece by piece."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from learned_bits import stopped_fit

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'bagwise[torch]')")

import bagwise  # noqa: E402
from bagwise import Bags, Dataset, ShardedBags, checkpoint  # noqa: E402
from bagwise.base.blocks import blocks_of_shards  # noqa: E402
from bagwise.compute.scaling import learn_scaling  # noqa: E402
from bagwise.errors import DataError  # noqa: E402
from bagwise.metrics import average_precision  # noqa: E402
from bagwise.models import DeepMIML  # noqa: E402
from bagwise.models.deep import fit as on_shards  # noqa: E402
from bagwise.models.deep.fit_members import Member, Settings  # noqa: E402
from bagwise.models.deep.network import Plan  # noqa: E402
from bagwise.models.deep.predict import Feed  # noqa: E402

SMALL = {"n_members": 2, "hidden": 24, "depth": 1, "max_epochs": 4, "random_state": 0}


def sample(n_bags=180, seed=0):
    """Three labels, each caused by an instance far out on an axis of its own; bags sorted by label set."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 7, n_bags)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.normal(size=(offsets[-1], 6)).astype(np.float32)
    Y = np.zeros((n_bags, 3), dtype=np.int8)
    for bag in range(n_bags):
        for label in np.flatnonzero(rng.random(3) < 0.4):
            X[offsets[bag] + rng.integers(sizes[bag]), label] += 4.0
            Y[bag, label] = 1
    names = [f"bag {k}" for k in range(n_bags)]
    data = Dataset(Bags(X, offsets, bag_ids=names), Y, label_names=["a", "b", "c"])
    return data[np.argsort(Y @ [4, 2, 1], kind="stable")]


@pytest.fixture(scope="module")
def data():
    return sample()


@pytest.fixture(scope="module")
def shards(tmp_path_factory, data):
    found = ShardedBags.write(data, tmp_path_factory.mktemp("deep") / "many", part_bytes=3_000)
    assert 4 < found.n_parts < 12
    return found


@pytest.fixture(scope="module")
def streamed(shards):
    return DeepMIML(**SMALL).fit(shards)


def same_bits(one, other):
    for a, b in zip(one.members_, other.members_, strict=True):
        for name, value in a.items():
            np.testing.assert_array_equal(value, b[name], err_msg=name)
    np.testing.assert_array_equal(one.calibration_slope_, other.calibration_slope_)
    assert one.epochs_ == other.epochs_


# ---------------------------------------------------------------------- shards


def test_one_part_is_the_fit_in_memory(data, tmp_path):
    one = ShardedBags.write(data, tmp_path / "one")
    assert one.n_parts == 1
    same_bits(DeepMIML(**SMALL).fit(one), DeepMIML(**SMALL).fit(data.bags, data.Y))


def test_streamed_and_held_parts_agree(shards, streamed):
    same_bits(streamed, DeepMIML(**SMALL).fit(shards.in_memory()))


def test_several_parts_learn_as_well_as_memory_though_they_are_sorted(shards, data):
    settings = {**SMALL, "max_epochs": 40, "hidden": 32}
    test = sample(300, seed=1)
    on_parts, in_memory = DeepMIML(**settings).fit(shards), DeepMIML(**settings).fit(data.bags, data.Y)
    ours, theirs = (average_precision(test.Y, m.decision_function(test.bags)) for m in (on_parts, in_memory))
    assert ours > theirs - 0.02 and ours > 0.95
    assert (on_parts.predict(test.bags) != test.Y).mean() < 0.1
    assert on_parts.label_names_ == ("a", "b", "c") and len(on_parts.histories_) == 2
    assert on_parts.score(shards) > 0.7


def test_every_bag_is_learned_once_per_pass_and_held_out_bags_never(shards, data, monkeypatch):
    blocks = blocks_of_shards(shards)
    parts = np.arange(len(data)) % 3 - 1
    seen, sizes = [], []
    for bags, Y, held_by in on_shards._mixed_parts(blocks, parts, np.random.RandomState(0)):
        names = bags.bag_ids.tolist()
        numbers = np.array([data.bags.bag_ids.tolist().index(name) for name in names])
        np.testing.assert_array_equal(Y, data.Y[numbers])
        np.testing.assert_array_equal(held_by, parts[numbers])
        seen += names
        sizes.append(len(names))
    assert sorted(seen) == sorted(data.bags.bag_ids.tolist())
    assert max(sizes) < 2 * max(shards.part_bags)


def test_fewer_bags_are_held_out_when_they_are_large(monkeypatch):
    monkeypatch.setattr(on_shards, "_HELD_OUT", 1000)
    monkeypatch.setattr(on_shards, "_LEAST_HELD_OUT", 1)
    held = on_shards.fewer_held_out(np.arange(100) % 5, 2, 50.0, np.random.RandomState(0))
    assert [(held == k).sum() for k in (0, 1)] == [10, 10]
    assert ((held < 0) | (held == np.arange(100) % 5)).all()
    monkeypatch.setattr(on_shards, "_LEAST_HELD_OUT", 15)
    held = on_shards.fewer_held_out(np.arange(100) % 5, 2, 5000.0, np.random.RandomState(0))
    assert [(held == k).sum() for k in (0, 1)] == [15, 15]


def test_sparse_shards(data, tmp_path):
    from scipy import sparse

    thin = Dataset(
        Bags(sparse.csr_array(data.bags.X), data.bags.offsets), data.Y, label_names=data.label_names
    )
    dense = Dataset(Bags(data.bags.X, data.bags.offsets), data.Y, label_names=data.label_names)
    found = [
        DeepMIML(**{**SMALL, "max_epochs": 3})
        .fit(ShardedBags.write(kind, tmp_path / str(k), part_bytes=4_000 * (1 + k)))
        .decision_function(data.bags)
        for k, kind in enumerate((dense, thin))
    ]
    assert np.corrcoef(found[0].ravel(), found[1].ravel())[0, 1] > 0.8  # parts are cut elsewhere


@pytest.mark.parametrize("stop_after", [3, 7])
def test_a_fit_that_was_stopped_goes_on(shards, streamed, tmp_path, monkeypatch, stop_after):
    stopped_fit(DeepMIML(**SMALL), shards, tmp_path / "fit", monkeypatch, after=stop_after)
    known = sorted((tmp_path / "fit").glob("*.npz"))
    assert len(known) == stop_after
    assert sum(path.stat().st_size > 10_000 for path in known) <= 3  # states of older passes make room
    with checkpoint(tmp_path / "fit"):
        same_bits(DeepMIML(**SMALL).fit(shards), streamed)


def test_too_few_bags_to_hold_some_out(tmp_path):
    few = sample(8)
    found = ShardedBags.write(few, tmp_path / "few", part_bytes=300)
    model = DeepMIML(**{**SMALL, "max_epochs": 3}).fit(found)
    assert found.n_parts > 1 and model.epochs_ == [3, 3]
    np.testing.assert_array_equal(model.calibration_slope_, 1.0)


def test_what_shards_cannot_have(shards, data):
    with pytest.raises(DataError, match="leave out y"):
        DeepMIML(**SMALL).fit(shards, data.Y)
    with pytest.raises(DataError, match="leave out sample_weight"):
        DeepMIML(**SMALL).fit(shards, sample_weight=np.ones(len(data)))


MEASURE = """
import json, sys
import numpy as np
from bagwise import Bags, Dataset, ShardedBags
from bagwise.models import DeepMIML
from bagwise.models.deep import fit as on_shards

def pieces(n_bags):
    rng = np.random.default_rng(0)
    for k in range(n_bags // 1000):
        ids = np.arange(1000 * k, 1000 * (k + 1))
        X = rng.standard_normal((10_000, 100), dtype=np.float32)
        Y = (np.arange(1000)[:, None] % 2 == np.arange(2)).astype(np.int8)
        yield Dataset(Bags(X, np.arange(0, 10_001, 10), bag_ids=ids), Y, label_names=["a", "b"])

def peak(action):
    before = int(open("/proc/self/statm").read().split()[1]) * 4096
    open("/proc/self/clear_refs", "w").write("5")
    action()
    top = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(top.split()[1]) * 1024 - before

out, part = sys.argv[1], int(sys.argv[2])
model = DeepMIML(n_members=2, hidden=8, depth=1, max_epochs=1, refit=False, device="cpu", random_state=0)
on_shards._HELD_OUT = part
model.fit(ShardedBags.write(pieces(2000), out + "/few", part_bytes=4_000_000))
many = ShardedBags.write(pieces(48_000), out + "/many", part_bytes=part)
print(json.dumps({"n_parts": many.n_parts, "fit": peak(lambda: model.fit(many))}))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs Linux's /proc")
def test_a_few_parts_in_memory(tmp_path):
    part, room = 8_000_000, 64_000_000  # room for what does not grow with parts: buffers, Arrow's memory
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path), str(part)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["n_parts"] >= 20  # 192 MB in all
    assert found["fit"] < 7 * part + room, found["fit"] / part


# ---------------------------------------------------------------------- members


def test_members_side_by_side_are_those_that_were_trained_alone(data):
    """Random numbers, moments and counts of a member belong to it; a state begins another where it was."""
    device = torch.device("cpu")
    feed = Feed(data.bags, learn_scaling(data.bags.X, "standard"), device, data.Y)
    plan = Plan("attention", "softmax", 6, 3, 16, 1, 0.5)
    settings = Settings("bce", 3e-3, 1e-2, 32, 4, 5, 0.5, False)
    train, held_out = np.arange(140), np.arange(140, 180)

    def passes(member, n):
        for _ in range(n):
            member.learn(feed, train)
            member.end_pass(feed, held_out)
        return member

    alone = [passes(Member(plan, settings, device, seed), 4).trained() for seed in (1, 2)]
    members = [Member(plan, settings, device, seed) for seed in (1, 2)]
    for _ in range(2):
        for member in members:
            passes(member, 1)
    again = Member(plan, settings, device, 7)
    again.restore(members[1].state())
    members[1] = again
    for _ in range(2):
        for member in members:
            passes(member, 1)
    for member, expected in zip(members, alone):
        assert member.done and member.trained().epoch == expected.epoch
        assert member.history == expected.history
        for name, value in expected.weights.items():
            np.testing.assert_array_equal(member.trained().weights[name], value)


# ---------------------------------------------------------------------- piece by piece


def test_pieces_come_close_to_all_at_once(tmp_path):
    data, test = sample(480, seed=2), sample(200, seed=3)
    order = np.random.default_rng(0).permutation(480)
    settings = {**SMALL, "max_epochs": 40}
    whole = DeepMIML(**settings).fit(data.bags[order], data.Y[order])
    model = DeepMIML(**settings).partial_fit(data.bags[order[:80]], data.Y[order[:80]])
    first = average_precision(test.Y, model.decision_function(test.bags))
    for k in range(80, 480, 80):
        rows = order[k : k + 80]
        model.partial_fit(data.bags[rows], data.Y[rows])
    last = average_precision(test.Y, model.decision_function(test.bags))
    best = average_precision(test.Y, whole.decision_function(test.bags))
    assert last >= first - 0.005 and last > best - 0.03
    loss = (model.predict(test.bags) != test.Y).mean()
    assert loss < (whole.predict(test.bags) != test.Y).mean() + 0.05
    # a saved model goes on as the one that was saved
    bagwise.save(model, tmp_path / "model.skops")
    loaded = bagwise.load(tmp_path / "model.skops")
    for one in (model, loaded):
        one.partial_fit(data.bags[:100], data.Y[:100])
    same_bits(model, loaded)


def test_pieces_of_shards_and_of_one_class_each(shards, data):
    model = DeepMIML(**SMALL).partial_fit(shards)
    before = [member["encoder.0.weight"].copy() for member in model.members_]
    model.partial_fit(shards)
    assert all((a != m["encoder.0.weight"]).any() for a, m in zip(before, model.members_))
    with pytest.raises(DataError, match="leave out y"):
        model.partial_fit(shards, data.Y)
    classes = data.Y[:, 0].astype(int)
    one = DeepMIML(**SMALL).partial_fit(data.bags[:20], classes[:20], classes=[0, 1])
    assert one.predict(data.bags[:3]).shape == (3,)


def test_labels_that_are_not_known_in_a_later_piece(data):
    model = DeepMIML(**SMALL).partial_fit(data.bags[::2], data.Y[::2])
    holes = data.Y[1::2].astype(float)
    holes[:, 0] = np.nan
    before = {k: v.copy() for k, v in model.members_[0].items()}
    model.partial_fit(data.bags[1::2], holes)
    assert (before["encoder.0.weight"] != model.members_[0]["encoder.0.weight"]).any()
    assert np.isfinite(model.decision_function(data.bags)).all()


def test_shards_of_other_labels_are_refused(shards, data, tmp_path):
    model = DeepMIML(**SMALL).partial_fit(shards)
    other = Dataset(data.bags, data.Y[:, ::-1].copy(), label_names=["c", "b", "a"])
    with pytest.raises(DataError, match="labels that it began with"):
        model.partial_fit(ShardedBags.write(other, tmp_path / "other"))
