"""ShardedBags: what is written comes back, in parts, by streams, after kills, never damaged in silence."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy import sparse

from bagwise import Bags, Dataset, MultiViewBags, ShardedBags, load_dataset, read
from bagwise.errors import DataError
from bagwise.shards import ShardWriter, is_shards


def make(n=40, *, kind="dense", seed=0, ids=True, labels=True, first=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 6, n)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.normal(size=(offsets[-1], 5)).astype(np.float32)
    info = {"start": rng.random(offsets[-1]), "box": rng.random((offsets[-1], 4)).astype(np.float32)}
    names = [f"bag{first + k:04d}" for k in range(n)] if ids else None
    if kind == "sparse":
        X = sparse.csr_array(np.where(rng.random(X.shape) < 0.3, X, 0))
    bags = Bags(X, offsets, bag_ids=names, instance_info=info)
    Y = (rng.random((n, 3)) < 0.4).astype(np.int8)
    known = rng.integers(-1, 3, offsets[-1]) if labels else None
    if kind == "views":
        other = Bags.from_list([rng.normal(size=(rng.integers(0, 3), 2)) for _ in range(n)], bag_ids=names)
        bags, known = MultiViewBags({"sound": bags, "words": other}), {"sound": known} if labels else None
    extra = {"groups": rng.integers(0, 6, n), "splits": {"train": np.arange(n // 2), "test": [n - 1]}}
    return Dataset(
        bags, Y if labels else None, ["c", "a", "b"] if labels else (), instance_Y=known, name="x", **extra
    )


def same(a, b):
    assert a.bags.equals(b.bags)
    assert a.label_names == b.label_names
    np.testing.assert_array_equal(a.Y, b.Y)
    np.testing.assert_array_equal(a.groups, b.groups)
    if isinstance(a.instance_Y, dict):
        np.testing.assert_array_equal(a.instance_Y["sound"], b.instance_Y["sound"])
    else:
        np.testing.assert_array_equal(a.instance_Y, b.instance_Y)


@pytest.mark.parametrize("kind", ["dense", "sparse", "views"])
@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("ids", [True, False])
def test_what_is_written_comes_back(tmp_path, kind, labels, ids):
    data = make(kind=kind, labels=labels, ids=ids)
    shards = ShardedBags.write(data, tmp_path / "s", part_bytes=500)
    assert shards.n_parts > 3
    assert shards.shape == data.bags.shape
    assert shards.n_instances == data.bags.n_instances
    same(shards.load(), data)
    np.testing.assert_array_equal(shards.Y, data.Y)
    np.testing.assert_array_equal(shards.bag_ids, data.bags.bag_ids)
    np.testing.assert_array_equal(shards.sizes, data.bags.sizes)
    np.testing.assert_array_equal(shards.groups, data.groups)
    assert shards.label_counts.tolist() == data.label_counts.tolist()
    assert sum(len(part) for part in shards) == len(data)
    same(shards["train"].load(), data["train"])


def test_parts_are_data_sets_of_their_own(tmp_path):
    data = make()
    shards = ShardedBags.write(data, tmp_path, part_bytes=500)
    part = read(tmp_path / "part-00000.parquet")
    assert part.bags.equals(shards.part(0).bags)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["n_bags"] == 40 and len(manifest["parts"][0]["sha256"]) == 64


def test_pieces_of_any_size_give_the_same_files(tmp_path):
    data = make(60)
    whole = ShardedBags.write(data, tmp_path / "a", part_bytes=700)
    rng = np.random.default_rng(1)
    cuts = np.unique([0, *rng.integers(0, 60, 9), 60])
    pieces = (data[int(a) : int(b)] for a, b in zip(cuts[:-1], cuts[1:]))
    other = ShardedBags.write(pieces, tmp_path / "b", part_bytes=700)
    # cuts of a data set drop its published parts, so files differ in that column alone
    assert [p.n_bags for p in whole.manifest.parts] == [p.n_bags for p in other.manifest.parts]
    assert other.load().bags.equals(data.bags)


@pytest.mark.parametrize("kind", ["dense", "sparse", "views"])
def test_bags_without_names_are_called_by_their_place(tmp_path, kind):
    pieces = [make(15, kind=kind, ids=False, seed=k) for k in range(4)]  # equal pieces: their numbers recur
    shards = ShardedBags.write(iter(pieces), tmp_path / "s", part_bytes=600)
    assert len(shards.manifest.parts) > 2
    ids = np.concatenate([part.bags.bag_ids for part in shards])
    np.testing.assert_array_equal(ids, np.arange(60))
    assert not any(part.bags.ids_given for part in shards)


def test_labels_that_come_later(tmp_path):
    pieces = [
        Dataset(Bags([[1.0], [2.0]], [0, 1, 2], bag_ids=["a", "b"]), [["wren"], []]),
        Dataset(Bags([[3.0]], [0, 1], bag_ids=["c"])),
        Dataset(Bags([[4.0]], [0, 1], bag_ids=["d"]), [["robin", "wren"]]),
    ]
    shards = ShardedBags.write(pieces, tmp_path / "s", part_bytes=8)
    assert shards.n_parts == 4
    assert shards.label_names == ("robin", "wren")
    assert shards.load().label_sets == [["wren"], [], [], ["robin", "wren"]]
    assert shards.label_counts.tolist() == [1, 2]
    with pytest.raises(DataError, match="robin"):
        ShardedBags.write(pieces, tmp_path / "t", part_bytes=8, label_names=["wren"])


def test_pieces_that_do_not_go_together(tmp_path):
    one = Dataset(Bags([[1.0]], [0, 1], bag_ids=["a"]), [["wren"]])
    for other, message in [
        (Dataset(Bags([[1.0, 2.0]], [0, 1], bag_ids=["b"]), [["wren"]]), "n_features is 2, before it was 1"),
        (Dataset(Bags(np.ones((1, 1), np.float32), [0, 1], bag_ids=["b"]), [["wren"]]), "dtype is float32"),
        (Dataset(Bags([[2.0]], [0, 1], bag_ids=["a"]), [["wren"]]), "'a' occurs twice"),
        (Dataset(Bags([[np.nan]], [0, 1], bag_ids=["b"]), [["wren"]]), "bag 'b', feature 0 is nan"),
        (Dataset(Bags([[1.0]], [0, 1], bag_ids=["b"]), [["wren"]], groups=[1]), "groups"),
    ]:
        folder = tmp_path / str(abs(hash(message)))
        with pytest.raises(DataError, match=message):
            ShardedBags.write([one, other], folder, part_bytes=8)
        assert not (folder / "manifest.json").exists()


def test_cutting_copies_nothing(tmp_path):
    data = make(80)
    shards = ShardedBags.write(data, tmp_path / "s", part_bytes=900)
    train, test = shards.split(0.3, random_state=1)
    together = np.concatenate([train.bag_ids, test.bag_ids])
    assert sorted(together.tolist()) == sorted(data.bags.bag_ids.tolist())
    assert abs(len(test) - 24) <= shards.n_parts
    again = shards.split(0.3, random_state=1)[1]
    assert again.bag_ids.tolist() == test.bag_ids.tolist() and again.fingerprint == test.fingerprint
    assert test.fingerprint != train.fingerprint != shards.fingerprint
    known = {name: k for k, name in enumerate(data.bags.bag_ids.tolist())}
    same(test.load(), data[[known[i] for i in test.bag_ids.tolist()]])
    chosen = np.array([3, 9, 40, 79])
    same(shards[chosen].load(), data[chosen])
    same(shards[10:50][::3].load(), data[10:50:3])
    assert test.label_counts.tolist() == test.load().label_counts.tolist()
    assert test.n_instances == test.load().bags.n_instances
    with pytest.raises(DataError, match="twice"):
        shards[[1, 1]]
    with pytest.raises(KeyError, match="published parts"):
        shards["validation"]


def test_groups_stay_together(tmp_path):
    shards = ShardedBags.write(make(80), tmp_path / "s", part_bytes=900)
    train, test = shards.split(0.4, by_group=True, random_state=3)
    assert len(train) and len(test) and not set(train.groups) & set(test.groups)


def test_sample(tmp_path):
    data = make(80)
    shards = ShardedBags.write(data, tmp_path / "s", part_bytes=900)
    some = shards.sample(20, random_state=0)
    assert len(set(some.bags.bag_ids.tolist())) == 20
    assert shards.sample(20, random_state=0).bags.equals(some.bags)
    with pytest.raises(ValueError, match="80 bags"):
        shards.sample(81)


def test_one_view(tmp_path):
    data = make(kind="views")
    shards = ShardedBags.write(data, tmp_path / "s", part_bytes=900)
    assert shards.view_names == ("sound", "words")
    words = shards.view("words")
    assert words.n_features == 2 and words.n_instances == data.bags["words"].n_instances
    assert words.load().bags.equals(data.bags["words"])


def test_a_damaged_part_is_named(tmp_path):
    ShardedBags.write(make(), tmp_path, part_bytes=500)
    victim = tmp_path / "part-00002.parquet"
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(bytes(content))
    shards = ShardedBags.open(tmp_path)
    with pytest.raises(DataError, match=r"part-00002\.parquet.*damaged.*SHA-256"):
        list(shards)
    with pytest.raises(DataError, match="part-00002"):
        ShardedBags.open(tmp_path, check=True)
    victim.unlink()
    with pytest.raises(DataError, match=r"part-00002\.parquet.*missing"):
        shards.load()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "nonsense", '{"format": "bagwise shards", "version": 99}', "[" * 100_000],
)
def test_a_manifest_that_is_none(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(DataError, match=r"manifest\.json"):
        ShardedBags.open(tmp_path)


def test_a_manifest_never_leaves_the_folder(tmp_path):
    ShardedBags.write(make(), tmp_path / "s", part_bytes=500)
    path = tmp_path / "s" / "manifest.json"
    path.write_text(path.read_text().replace("part-00001.parquet", "../part-00001.parquet"))
    with pytest.raises(DataError, match="cannot be"):
        ShardedBags.open(tmp_path / "s")


def test_folders_that_are_none(tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        ShardedBags.open(tmp_path / "nothing")
    with pytest.raises(DataError, match="not shards"):
        ShardedBags.open(tmp_path)
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="other files"):
        ShardedBags.write(make(), tmp_path)
    ShardedBags.write(make(), tmp_path / "s")
    with pytest.raises(DataError, match="already"):
        ShardedBags.write(make(), tmp_path / "s")
    with pytest.raises(DataError, match="no bag"):
        ShardedBags.write([], tmp_path / "t")


KILLED = """
import sys, time
sys.path.insert(0, {tests!r})
from test_sharded_bags import make
from bagwise.shards import ShardWriter
data = make(200)
with ShardWriter({folder!r}, part_bytes=700) as writer:
    print("ready", flush=True)
    for k in range(200):
        writer.add(data[k:k+1])
"""


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
@pytest.mark.parametrize("delay", [0.0, 0.05, 0.2])
def test_a_killed_write_goes_on(tmp_path, delay):
    folder = tmp_path / "s"
    code = KILLED.format(tests=os.path.dirname(__file__), folder=str(folder))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout.readline().strip() == b"ready"
    while not (folder / "manifest.partial.json").exists() and process.poll() is None:
        time.sleep(0.005)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    if not (folder / "manifest.json").exists():
        assert is_shards(folder)
        with pytest.raises(DataError, match="stopped"):
            ShardedBags.open(folder)
        data = make(200)
        with ShardWriter(folder, part_bytes=700) as writer:
            for k in range(200):
                writer.add(data[k : k + 1])
    with ShardWriter(tmp_path / "t", part_bytes=700) as writer:
        writer.add(make(200)[:200])
    one, other = ShardedBags.open(folder, check=True), ShardedBags.open(tmp_path / "t")
    assert [p.sha256 for p in one.manifest.parts] == [p.sha256 for p in other.manifest.parts]
    assert not (folder / "manifest.partial.json").exists()


def test_going_on_with_another_source(tmp_path):
    data = make(60)
    writer = ShardWriter(tmp_path, part_bytes=700)
    writer.add(data)  # never closed: as if it had been stopped
    assert 0 < writer.n_written < 60
    other = make(60, first=7)
    with pytest.raises(DataError, match="'bag0007', which is not the one"):
        ShardWriter(tmp_path, part_bytes=700).add(other)
    with pytest.raises(DataError, match="ended"), ShardWriter(tmp_path, part_bytes=700) as again:
        again.add(data[:2])
    with ShardWriter(tmp_path, part_bytes=700, skip=False) as last:
        assert last.n_written == writer.n_written
        last.add(data[last.n_written :])
    assert ShardedBags.open(tmp_path).load().bags.equals(data.bags)


def test_any_place(tmp_path):
    pytest.importorskip("fsspec")
    import pickle

    data = make()
    for folder in ("memory://birds/shards", f"file://{tmp_path}/shards"):
        shards = ShardedBags.write(data, folder, part_bytes=500)
        same(pickle.loads(pickle.dumps(shards)).load(), data)
        assert "manifest.partial.json" not in shards.place.names()
    with pytest.raises(DataError, match="no such place"):
        ShardedBags.open("nowhere://x")


def test_in_memory_and_pickle(tmp_path):
    shards = ShardedBags.write(load_dataset("digits", n_bags=50), tmp_path / "s", part_bytes=30_000)
    held = shards.in_memory()
    for name in os.listdir(tmp_path / "s"):
        os.unlink(tmp_path / "s" / name)
    assert sum(len(part) for part in held) == 50
    assert held.fingerprint == shards.fingerprint
    assert sum(len(part) for part in held[5:20]) == 15
