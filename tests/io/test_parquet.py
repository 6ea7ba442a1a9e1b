"""The native format: nothing is lost, others can open it, and broken files say so."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from random_sets import assert_same, data_sets, small_set
from scipy import sparse

from bagwise import Bags, Dataset
from bagwise.bags import MultiViewBags
from bagwise.errors import DataError
from bagwise.io import parquet, read, write


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=data_sets())
def test_round_trip(tmp_path, data):
    write(data, tmp_path / "set.parquet")
    assert_same(data, read(tmp_path / "set.parquet"))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=data_sets())
def test_round_trip_in_many_row_groups(tmp_path, data):
    path = tmp_path / "set.parquet"
    write(data, path)
    pq.write_table(pq.read_table(path), path, row_group_size=1)
    assert_same(data, read(path))


def test_row_groups_hold_about_the_stated_size(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 1000)
    data = Dataset(Bags(np.ones((400, 10)), np.arange(0, 401, 4)), np.ones((100, 1), dtype=int))
    write(data, tmp_path / "set.parquet")
    assert pq.ParquetFile(tmp_path / "set.parquet").metadata.num_row_groups == 34
    assert_same(data, read(tmp_path / "set.parquet"))


def test_one_chunk_is_not_copied():
    column = Bags.from_list([np.ones((2, 3)), np.ones((1, 3))]).to_arrow()
    X = Bags.from_arrow(pa.chunked_array([column])).X
    assert X.__array_interface__["data"][0] == column.values.values.buffers()[1].address


def test_columns_and_metadata_are_as_documented(tmp_path):
    write(small_set(), tmp_path / "set.parquet")
    schema = pq.read_schema(tmp_path / "set.parquet")
    assert set(schema.names) == {
        "bag_id", "instances", "labels", "instance_labels", "instance_info", "group", "splits",
    }  # fmt: skip
    facts = json.loads(schema.metadata[b"bagwise"])
    assert facts["version"] == 1
    assert facts["label_names"] == ["robin", "wren"]
    assert facts["views"]["instances"]["n_features"] == 2
    assert facts["views"]["instances"]["feature_names"] == ["width", "height"]


def test_opens_in_pandas(tmp_path):
    write(small_set(), tmp_path / "set.parquet")
    frame = pd.read_parquet(tmp_path / "set.parquet")
    assert frame["bag_id"].tolist() == ["a", "ß", "c"]
    assert [list(names) for names in frame["labels"]] == [["robin", "wren"], [], ["wren"]]
    np.testing.assert_array_equal(np.stack(frame["instances"][0]), [[1.5, -2.0], [0.25, 3.0]])
    assert list(frame["instance_labels"][0]) == ["robin", None]


def test_opens_in_polars(tmp_path):
    write(small_set(), tmp_path / "set.parquet")
    frame = pl.read_parquet(tmp_path / "set.parquet")
    assert frame["labels"].to_list() == [["robin", "wren"], [], ["wren"]]
    assert [list(row) for row in frame["instances"].to_list()[0]] == [[1.5, -2.0], [0.25, 3.0]]
    assert frame["instance_info"].to_list()[2][0]["word"] == "öl"


def test_sparse_opens_in_polars_and_pandas(tmp_path):
    data = Dataset(Bags(sparse.csr_array([[0, 1.5], [0, 0]]), [0, 2]), [["x"]])
    write(data, tmp_path / "set.parquet")
    assert pl.read_parquet(tmp_path / "set.parquet")["instances"].to_list() == [
        [[{"index": 1, "value": 1.5}], []]
    ]
    assert pd.read_parquet(tmp_path / "set.parquet")["instances"][0][0][0] == {"index": 1, "value": 1.5}


def test_opens_in_hugging_face_datasets(tmp_path):
    pytest.importorskip("datasets")
    write(small_set(), tmp_path / "set.parquet")
    program = (
        "import sys, datasets\n"
        "path, cache = sys.argv[1:]\n"
        "rows = datasets.load_dataset('parquet', data_files=path, cache_dir=cache, split='train')\n"
        "assert rows['bag_id'][:] == ['a', 'ß', 'c'], rows['bag_id'][:]\n"
        "assert rows['labels'][:] == [['robin', 'wren'], [], ['wren']]\n"
        "assert rows[0]['instances'] == [[1.5, -2.0], [0.25, 3.0]]\n"
        "assert rows[2]['instance_info'][0]['word'] == 'öl'\n"
    )
    # In a process of its own: the package reads these variables when it is imported.
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "set.parquet"), str(tmp_path / "cache")],
        env=os.environ | offline | {"PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_foreign_table_from_pandas(tmp_path):
    path = tmp_path / "foreign.parquet"
    frame = pd.DataFrame(
        {
            "labels": [["b", "a"], [], ["b"]],
            "pixels": [[[1, 2], [3, 4]], [], [[5, 6]]],
            "bag_id": ["x", "y", "z"],
            "note": ["not", "used", "here"],
        }
    )
    frame.to_parquet(path)
    data = read(path)
    assert data.label_names == ("a", "b")
    assert data.Y.tolist() == [[1, 1], [0, 0], [0, 1]]
    assert data.bags.X.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert data.bags.bag_ids.tolist() == ["x", "y", "z"]
    assert data.name == "foreign"


def test_foreign_table_from_polars_with_views_and_numbered_labels(tmp_path):
    path = tmp_path / "foreign.parquet"
    frame = {"tags": [[3, 1], [1]], "rgb": [[[1.0], [2.0]], []], "txt": [[[1.0, 2.0]], [[3.0, 4.0]]]}
    pl.DataFrame(frame).write_parquet(path)
    data = read(path, labels="tags")
    assert isinstance(data.bags, MultiViewBags)
    assert data.bags.view_names == ("rgb", "txt")
    assert data.label_names == ("1", "3")
    assert not data.bags.has_bag_ids
    assert data.bags["rgb"].sizes.tolist() == [2, 0]


def test_foreign_table_with_one_label_per_bag_and_more_names(tmp_path):
    path = tmp_path / "foreign.parquet"
    pq.write_table(pa.table({"labels": ["b", None], "x": [[[1.0]], [[2.0]]]}), path)
    data = read(path, label_names=["a", "b"])
    assert data.Y.tolist() == [[0, 1], [0, 0]]


def bare(**columns):
    return pa.table({"labels": [["a"], ["b"]], "bag_id": ["first", "second"], **columns})


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (bare(x=[[[1.0, 2.0]], [[float("nan"), 1.0]]]), ["'second'", "feature 0", "nan"]),
        (bare(x=[[[1.0, 2.0]], [[None, 1.0]]]), ["'second'", "null"]),
        (bare(x=[[[1.0, 2.0]], None]), ["'second'", "null"]),
        (bare(x=[[[1.0, 2.0]], [None]]), ["'second'", "null"]),
        (bare(x=[[[1.0, 2.0]], [[1.0]]]), ["'second'", "1 features", "expected 2"]),
        (bare(x=[[1.0], [2.0]]), ["no column holds lists of instances"]),
        (bare(x=[[["t"]], [["u"]]]), ["no column holds lists of instances"]),
        (pa.table({"x": [[[1.0]]], "labels": [["a", None]]}), ["null"]),
        (pa.table({"x": [[[1.0]]] * 2, "labels": [["a"]] * 2, "bag_id": ["q", "q"]}), ["'q' occurs twice"]),
    ],
)
def test_wrong_tables_are_refused_by_name(tmp_path, table, words):
    path = tmp_path / "wrong.parquet"
    pq.write_table(table, path)
    with pytest.raises(DataError, match=r"wrong\.parquet") as caught:
        read(path)
    for word in words:
        assert word in str(caught.value)


def test_unknown_label_names_bag_and_label(tmp_path):
    path = tmp_path / "wrong.parquet"
    pq.write_table(bare(x=[[[1.0]], [[2.0]]]), path)
    with pytest.raises(DataError, match=r"'second': unknown label 'b'"):
        read(path, label_names=["a", "c"])


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9, 0.99])
def test_truncated_file(tmp_path, cut):
    path = tmp_path / "cut.parquet"
    write(small_set(), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * cut)])
    with pytest.raises(DataError, match=r"cut\.parquet: not a Parquet file, or damaged"):
        read(path)


def test_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "bomb.parquet"
    zeros = Bags(np.zeros((400_000, 10)), [0, 400_000])
    write(Dataset(zeros, [["x"]]), path)
    assert path.stat().st_size < 200_000
    with pytest.raises(DataError, match=r"bomb\.parquet: holds .* bytes when unpacked"):
        read(path, max_bytes=10_000_000)
    repeated = pa.table({"labels": [["a"]] * 3_000_000, "x": [[[1.0]]] * 3_000_000})
    pq.write_table(repeated, path)
    with pytest.raises(DataError, match="bytes when unpacked"):
        read(path, max_bytes=10_000_000)


def test_label_matrix_larger_than_allowed(tmp_path):
    path = tmp_path / "labels.parquet"
    data = Dataset(Bags(np.ones((2000, 1)), np.arange(2001)), np.eye(2000, dtype=int))
    write(data, path)
    with pytest.raises(DataError, match="has label sets of 4,000,000 bytes"):
        read(path, max_bytes=1_000_000)


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts.update(version=99),
        lambda facts: facts.update(views={}),
        lambda facts: facts.update(views=[]),
        lambda facts: facts["views"].update(other=facts["views"]["instances"]),
        lambda facts: facts["views"]["instances"].update(n_features=3),
        lambda facts: facts["views"]["instances"].update(n_features="2"),
        lambda facts: facts["views"]["instances"].update(feature_names=["one"]),
        lambda facts: facts["views"]["instances"]["info"]["box"].update(shape=[5]),
        lambda facts: facts["views"]["instances"]["info"]["box"].update(dtype="O"),
        lambda facts: facts.update(label_names=["robin"]),
        lambda facts: facts.update(label_names=["robin", "robin", "wren"]),
        lambda facts: facts.update(label_names=None),
        lambda facts: facts.update(splits=["train"]),
        lambda facts: facts.update(ordered_splits={"train": [7]}),
        lambda facts: facts.pop("several_views"),
    ],
)
def test_metadata_that_lie(tmp_path, change):
    path = tmp_path / "lie.parquet"
    write(small_set(), path)
    table = pq.read_table(path)
    facts = json.loads(table.schema.metadata[b"bagwise"])
    change(facts)
    pq.write_table(table.replace_schema_metadata({"bagwise": json.dumps(facts)}), path)
    with pytest.raises(DataError, match=r"lie\.parquet"):
        read(path)


def test_views_may_not_take_the_names_of_other_columns(tmp_path):
    bags = Bags(np.ones((1, 1)), [0, 1])
    with pytest.raises(DataError, match="two columns would be called 'labels'"):
        write(Dataset(MultiViewBags({"labels": bags}), [["x"]]), tmp_path / "set.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("odd", [np.array([1j]), np.array([{}], dtype=object), np.array([b"x"])])
def test_facts_that_no_file_can_hold(tmp_path, odd):
    data = Dataset(Bags(np.ones((1, 1)), [0, 1], instance_info={"odd": odd}), [["x"]])
    for suffix in ("parquet", "npz"):
        with pytest.raises(DataError):
            write(data, tmp_path / f"set.{suffix}")
    assert list(tmp_path.iterdir()) == []
