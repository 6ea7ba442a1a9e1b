"""Parquet of other software becomes shards: one row per instance, or lists; a bag may cross files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import run

from bagwise import Dataset, ShardedBags, actions, load_dataset, write
from bagwise.errors import BagwiseError, DataError
from bagwise.shards import convert_parquet


def long_table(n_bags=50, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 8, n_bags)
    ids = np.repeat([f"r{k:03d}" for k in range(n_bags)], sizes)
    sets = np.array(["", "wren", "robin", "robin;wren"])[rng.integers(0, 4, n_bags)]
    table = pa.table(
        {
            "bag_id": ids,
            "f1": rng.normal(size=len(ids)),
            "f2": rng.normal(size=len(ids)).astype(np.float32),
            "labels": np.repeat(sets, sizes),
            "info:time": rng.random(len(ids)),
        }
    )
    return table


@pytest.mark.parametrize("row_group_size", [3, 1000])
def test_one_row_per_instance(tmp_path, row_group_size):
    table = long_table()
    folder = tmp_path / "in" / "year=2024"
    folder.mkdir(parents=True)
    for k, first in enumerate(range(0, len(table), 37)):  # bags cross files
        pq.write_table(table.slice(first, 37), folder / f"{k:03d}.parquet", row_group_size=row_group_size)
    shards = convert_parquet(tmp_path / "in", tmp_path / "out", part_bytes=400)
    expected = Dataset.from_frame(table)
    assert shards.n_parts > 3
    assert shards.load().bags.equals(expected.bags)
    assert shards.load().label_sets == expected.label_sets
    assert shards.label_names == ("robin", "wren")


def test_an_embedding_column_and_flags(tmp_path):
    rng = np.random.default_rng(0)
    E = rng.normal(size=(30, 4)).astype(np.float32)
    table = pa.table(
        {
            "slide": np.repeat(["a", "b", "c"], 10),
            "embedding": list(E),
            "tumour": np.repeat([1, 0, 1], 10),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    shards = convert_parquet(tmp_path / "x.parquet", tmp_path / "out", bag="slide", labels=["tumour"])
    np.testing.assert_array_equal(shards.load().bags.X, E)
    assert shards.Y.ravel().tolist() == [1, 0, 1]


def test_lists(tmp_path):
    bags = [[[1.0, 2.0]], [], [[3.0, 4.0], [5.0, 6.0]], [[7.0, 8.0]]]
    for k in range(2):
        rows = {"bag_id": [4 * k + j for j in range(4)], "x": bags, "labels": [["a"], [], ["b", "a"], ["c"]]}
        pq.write_table(pa.table(rows), tmp_path / f"{k}.parquet", row_group_size=1)
    shards = convert_parquet(tmp_path, tmp_path / "out", part_bytes=16)
    assert shards.load().bags.sizes.tolist() == [1, 0, 2, 1] * 2
    assert shards.load().label_sets == [["a"], [], ["a", "b"], ["c"]] * 2


def test_our_own_files(tmp_path):
    data = load_dataset("digits", n_bags=100)
    write(data, tmp_path / "d.parquet")
    shards = convert_parquet(tmp_path / "d.parquet", tmp_path / "out", part_bytes=40_000)
    assert shards.n_parts > 2 and shards.load().bags.equals(data.bags)
    assert (shards["train"].bag_ids == data["train"].bags.bag_ids).all()


def test_rows_that_do_not_stand_together(tmp_path):
    table = long_table()
    mixed = table.take(np.random.default_rng(0).permutation(len(table)))
    pq.write_table(mixed, tmp_path / "x.parquet", row_group_size=5)
    with pytest.raises(DataError, match="occurs twice; rows of a bag must stand together"):
        convert_parquet(tmp_path / "x.parquet", tmp_path / "out", part_bytes=400)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_what_is_no_table_of_bags(tmp_path):
    pq.write_table(pa.table({"a": [1.0]}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"x\.parquet: no column 'bag_id'.*'a'"):
        convert_parquet(tmp_path / "x.parquet", tmp_path / "out")
    (tmp_path / "y.parquet").write_bytes(b"PAR1nonsense")
    with pytest.raises(DataError, match=r"y\.parquet"):
        convert_parquet(tmp_path / "y.parquet", tmp_path / "out2")
    with pytest.raises(DataError, match="no such"):
        convert_parquet(tmp_path / "nothing", tmp_path / "out3")


def test_the_command(tmp_path):
    pq.write_table(long_table(), tmp_path / "x.parquet")
    out = tmp_path / "shards"
    command = ["convert", tmp_path / "x.parquet", f"{out}/"]
    done = run(*command, "--part-mb", "0.0005")
    assert done.exit_code == 0, done.stderr
    assert "wrote 50 bags" in done.stdout and "parts" in done.stdout
    again = run(*command)
    assert again.exit_code == 2 and "already" in again.stderr and "Traceback" not in again.stderr
    info = run("info", out)
    assert "2 labels" in ShardedBags.open(out).__repr__() and "wren" in info.stdout


def test_packed_on_request(tmp_path):
    """Less room, the same bags; a file is packed as its format has it."""
    data = load_dataset("digits", n_bags=100)
    told = []

    def advance(steps, total):
        told.append((steps, total))

    write(data, tmp_path / "d.parquet")
    flat = actions.convert(tmp_path / "d.parquet", f"{tmp_path}/flat/", part_bytes=100_000)
    how = {"part_bytes": 100_000, "packed": True, "advance": advance}
    packed = actions.convert(tmp_path / "flat", tmp_path / "packed", to="shards", **how)
    assert packed["n_parts"] == flat["n_parts"] > 1 and told == [(1, flat["n_parts"])] * flat["n_parts"]
    one, other = (ShardedBags.open(tmp_path / name) for name in ("flat", "packed"))
    assert one.load().bags.equals(other.load().bags) and one.load().label_sets == other.load().label_sets
    room, less = (sum(part.n_bytes for part in shards.manifest.parts) for shards in (one, other))
    assert less < 0.7 * room  # digits have few values
    command = ["convert", tmp_path / "d.parquet", "--packed"]
    done = run(*command, f"{tmp_path}/again/")
    assert done.exit_code == 0, done.stderr
    assert sum(p.n_bytes for p in ShardedBags.open(tmp_path / "again").manifest.parts) < 0.7 * room
    refused = run(*command, tmp_path / "d.npz")
    assert refused.exit_code == 2 and "packed is for shards" in refused.stderr
    with pytest.raises(BagwiseError, match="packed is for shards"):
        actions.gather(tmp_path, tmp_path / "g.npz", packed=True)
