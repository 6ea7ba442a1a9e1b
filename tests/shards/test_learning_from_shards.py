"""Models on shards: the numbers of bags in memory, streamed or held, stopped or not; refusals in one line."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from command_line import run
from learned_bits import same_bits

from bagwise import ShardedBags, checkpoint, load, load_dataset
from bagwise.errors import DataError
from bagwise.models import MIMLKNN, MIMLFast, ORedLogisticRegression, PooledLogisticRegression

LEARNERS = {
    "ored": lambda: ORedLogisticRegression(),
    "pooled": lambda: PooledLogisticRegression(),
    "mimlfast": lambda: MIMLFast(n_components=10, max_iter=3, random_state=0),
    "ored, plain": lambda: ORedLogisticRegression(alpha=0.3, decision="union", standardize=False),
}


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits", n_bags=120)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, digits):
    place = tmp_path_factory.mktemp("shards")
    ShardedBags.write(digits, place / "many", part_bytes=30_000)
    ShardedBags.write(digits, place / "one")
    return place


@pytest.mark.parametrize("name", LEARNERS)
def test_one_part_is_the_fit_in_memory(folder, digits, name):
    shards = ShardedBags.open(folder / "one")
    in_memory, on_shards = LEARNERS[name](), LEARNERS[name]()
    same_bits(in_memory.fit(digits.bags, digits.Y), on_shards.fit(shards))


@pytest.mark.parametrize("name", LEARNERS)
def test_streamed_and_held_parts_agree(folder, digits, name):
    shards = ShardedBags.open(folder / "many")
    assert shards.n_parts > 4
    streamed, held = LEARNERS[name]().fit(shards), LEARNERS[name]().fit(shards.in_memory())
    same_bits(streamed, held)
    in_memory = LEARNERS[name]().fit(digits.bags, digits.Y)
    agree = (streamed.predict(digits.bags) == in_memory.predict(digits.bags)).mean()
    assert name == "mimlfast" or agree > 0.98  # sums in another order stop the climb elsewhere


def test_answers_of_shards(folder, digits):
    shards = ShardedBags.open(folder / "many")
    model = ORedLogisticRegression(alpha=1.0, background=False, decision="union", max_iter=20).fit(shards)
    assert model.label_names_ == digits.label_names
    np.testing.assert_array_equal(model.predict(shards), model.predict(digits.bags))
    np.testing.assert_array_equal(model.annotate(shards), model.annotate(digits.bags))
    np.testing.assert_array_equal(model.annotate(shards, True), model.annotate(digits.bags, digits.Y))
    np.testing.assert_array_equal(model.annotate(shards, digits.Y), model.annotate(digits.bags, digits.Y))
    np.testing.assert_allclose(model.predict_proba(shards), model.predict_proba(digits.bags), atol=1e-5)
    np.testing.assert_allclose(model.instance_scores(shards), model.instance_scores(digits.bags), atol=1e-3)
    assert model.score(shards) == model.score(digits.bags, digits.Y)
    train, test = shards.split(0.25)
    other = ORedLogisticRegression(decision="union", max_iter=20).fit(train)
    assert other.score(test) > 0.3


def test_refusals(folder, digits, tmp_path):
    shards = ShardedBags.open(folder / "many")
    with pytest.raises(
        TypeError, match=r"MIMLKNN needs all bags.*ORedLogisticRegression.*shards\.sample"
    ) as e:
        MIMLKNN().fit(shards)
    assert "\n" not in str(e.value)
    with pytest.raises(ValueError, match="kernel='rbf'"):
        ORedLogisticRegression(kernel="rbf").fit(shards)
    with pytest.raises(DataError, match="leave out y"):
        ORedLogisticRegression().fit(shards, digits.Y)
    with pytest.raises(DataError, match="sample_weight"):
        ORedLogisticRegression().fit(shards, sample_weight=np.ones(120))
    from bagwise import Bags, Dataset

    bare = ShardedBags.write(Dataset(digits.bags), tmp_path / "bare")
    with pytest.raises(DataError, match="no labels"):
        ORedLogisticRegression().fit(bare)
    holes = Dataset(Bags([[1.0], [2.0]], [0, 1, 1, 2], bag_ids=["a", "b", "c"]), [["x"], ["x"], []])
    with pytest.raises(DataError, match="empty: 'b'"):
        ORedLogisticRegression().fit(ShardedBags.write(holes, tmp_path / "holes"))


def test_a_part_that_cannot_be_read(folder, digits, tmp_path):
    shards = ShardedBags.write(digits, tmp_path / "s", part_bytes=30_000)
    (tmp_path / "s" / "part-00003.parquet").write_bytes(b"nothing")
    model = ORedLogisticRegression()
    with pytest.raises(DataError, match=r"part-00003\.parquet"):
        model.fit(shards)
    assert not hasattr(model, "coef_")


# ---------------------------------------------------------------------- a driver that is killed

DRIVER = """
import sys
from bagwise import ShardedBags, checkpoint
from bagwise.models import ORedLogisticRegression
with checkpoint({where!r}):
    ORedLogisticRegression(decision="union", max_iter=30).fit(ShardedBags.open({shards!r}))
"""


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_a_killed_driver_goes_on(folder, tmp_path):
    where = tmp_path / "fit"
    code = DRIVER.format(where=str(where), shards=str(folder / "many"))
    process = subprocess.Popen([sys.executable, "-c", code])
    while process.poll() is None and not (where / "000009.npz").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    shards = ShardedBags.open(folder / "many")

    def fit(**other):
        return ORedLogisticRegression(**{"decision": "union", "max_iter": 30, **other}).fit(shards)

    with checkpoint(where) as journal:
        assert journal.n_known >= 10
        gone_on = fit()
    same_bits(gone_on, fit())
    with pytest.raises(DataError, match="another manifest"), checkpoint(where):
        ORedLogisticRegression(decision="union", max_iter=30).fit(ShardedBags.open(folder / "one"))
    with pytest.raises(DataError, match="another model"), checkpoint(where):
        fit(alpha=7.0)
    (where / "000003.npz").write_bytes(b"x")
    with pytest.raises(DataError, match="000003"), checkpoint(where):
        fit()


# ---------------------------------------------------------------------- the command


def command(*words):
    done = run(*words)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_the_commands(folder, tmp_path):
    shards, model = folder / "many", tmp_path / "m.skops"
    name = ["-m", "ORedLogisticRegression", "-p", "decision=union", "-p", "max_iter=10"]
    done = command("fit", shards, *name, "--part", "train", "--out", model, "--json")
    assert done.exit_code == 0, done.stderr
    assert '"n_parts"' in done.stdout and not (tmp_path / "m.skops.checkpoint").exists()
    assert load(model).coef_.shape == (10, 64)
    assert command("predict", model, shards, "--out", tmp_path / "p.parquet").exit_code == 0
    assert command("annotate", model, shards, "--use-labels", "--out", tmp_path / "found").exit_code == 0
    import pyarrow.parquet as pq

    assert pq.read_table(tmp_path / "p.parquet").num_rows == 120
    files = sorted((tmp_path / "found").glob("part-*.parquet"))
    assert sum(pq.read_table(f).num_rows for f in files) == ShardedBags.open(shards).n_instances
    assert "Hamming" in command("score", model, shards, "--part", "test").stdout
    refused = command("fit", shards, "-m", "MIMLKNN", "--out", tmp_path / "k.skops")
    assert refused.exit_code == 2 and "needs all bags at once" in refused.stderr
    listed = command("list", "ORedLogisticRegression").stdout
    assert "shards" in listed
