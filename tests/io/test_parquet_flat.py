"""Parquet whose numbers lie flat: other readers see an ordinary file, ours reads it without decoding."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from bagwise import Bags, Dataset, ShardedBags, read
from bagwise.io import _parquet_pages, parquet
from bagwise.io._parquet_pages import read_flat, write_flat


def data(dtype, n=50, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 5, n)
    sizes[[0, 7, n - 1]] = 0  # an empty bag at both ends
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.normal(size=(offsets[-1], 6)).astype(dtype)
    info = {
        "where": np.array([f"recording {k % 3}" for k in range(offsets[-1])]),
        "t": rng.random(offsets[-1]),
    }
    return Dataset(Bags(X, offsets, bag_ids=[f"b{k}" for k in range(n)], instance_info=info), [["wren"]] * n)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("group_bytes", [16 << 20, 100])
def test_the_same_numbers_flat_and_decoded(tmp_path, monkeypatch, dtype, group_bytes):
    monkeypatch.setattr(_parquet_pages, "_GROUP_BYTES", group_bytes)
    given, path = data(dtype), tmp_path / "a.parquet"
    cuts = [0, 1, 3, 4, 30, 50]  # bags that come in several pieces, some without instances
    pieces = [given.bags[a:b] for a, b in zip(cuts[:-1], cuts[1:])]
    write_flat(replace(given, bags=given.bags.with_X(given.bags.X[:, :0])), {"instances": pieces}, path, {})
    assert read(path).bags.equals(given.bags)  # decoded by Arrow
    rows = pq.read_table(path).column("instances").to_pylist()
    np.testing.assert_array_equal(np.concatenate([row for row in rows if row]), given.bags.X)
    meta = pq.read_metadata(path)
    assert meta.num_row_groups > (7 if group_bytes > 1000 else 15)
    with open(path, "rb", buffering=0) as handle:
        X = read_flat(handle, meta, "instances", given.bags.sizes, 6, dtype)
        assert read_flat(handle, meta, "instances", given.bags.sizes, 6, np.int32) is None
        assert read_flat(handle, meta, "other", given.bags.sizes, 6, dtype) is None
    np.testing.assert_array_equal(X, given.bags.X)
    assert X.ctypes.data % 64 == 0 and X.flags.writeable


@pytest.mark.parametrize(
    "settings",
    [
        {"compression": "zstd"},
        {"compression": "none", "use_dictionary": True},
        {"compression": "none", "use_byte_stream_split": ["instances.list.element.list.element"]},
        {"compression": "none", "use_dictionary": False, "data_page_size": 64, "write_batch_size": 8},
    ],
)
def test_other_layouts_are_left_to_arrow(tmp_path, settings):
    given, path = data(np.float32, n=400), tmp_path / "a.parquet"
    settings = {"use_dictionary": False, **settings}
    pq.write_table(parquet.table_of(given)[0], path, **settings)
    with open(path, "rb", buffering=0) as handle:
        assert read_flat(handle, pq.read_metadata(path), "instances", given.bags.sizes, 6, np.float32) is None


def test_version_2_pages_are_left_to_arrow(tmp_path):
    given, path = data(np.float32), tmp_path / "a.parquet"
    pq.write_table(
        parquet.table_of(given)[0], path, use_dictionary=False, compression="none", data_page_version="2.0"
    )
    with open(path, "rb", buffering=0) as handle:
        assert read_flat(handle, pq.read_metadata(path), "instances", given.bags.sizes, 6, np.float32) is None


def test_packed_and_flat_shards_hold_the_same(tmp_path):
    given = data(np.float32)
    flat = ShardedBags.write(given, tmp_path / "flat", part_bytes=400)
    packed = ShardedBags.write(given, tmp_path / "packed", part_bytes=400, flat=False)
    for k in range(flat.n_parts):
        assert flat.part(k).bags.equals(packed.part(k).bags)
        np.testing.assert_array_equal(flat.part(k).Y, packed.part(k).Y)
    chunk = pq.read_metadata(tmp_path / "flat" / "part-00001.parquet").row_group(0).column(1)
    assert chunk.compression == "UNCOMPRESSED" and "PLAIN" in chunk.encodings
    elsewhere = ShardedBags.write(given, "memory://flat-test", part_bytes=400)
    assert elsewhere.load().bags.equals(given.bags)
