"""Bags to be predicted have no labels: every format that can be written keeps them so."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from random_sets import assert_same
from scipy import io as scipy_io

from bagwise import Bags, Dataset, MultiViewBags
from bagwise.errors import DataError
from bagwise.io import read, write
from bagwise.models import MIMLDummy


def bags():
    return Bags.from_list([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]], bag_ids=["a", "b"])


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet", ".npz", ".arff", ".mat"])
@pytest.mark.parametrize("given", [None, np.zeros((2, 0))])
def test_round_trip(tmp_path, suffix, given):
    data = Dataset(bags(), given)
    assert not data.has_labels and data.label_names == () and data.Y.shape == (2, 0)
    write(data, tmp_path / f"new{suffix}")
    again = read(tmp_path / f"new{suffix}")
    assert not again.has_labels and again.label_names == () and again.Y.shape == (2, 0)
    assert again.bags.bag_ids.tolist() == ["a", "b"]
    np.testing.assert_array_equal(again.bags.X, data.bags.X)
    model = MIMLDummy().fit(data.bags, [["wren"], ["robin"]])
    assert model.predict(again.bags).shape == (2, 2)
    with pytest.raises(DataError, match="no labels to learn from"):
        MIMLDummy().fit(again.bags, again.Y)


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_several_views(tmp_path, suffix):
    data = Dataset(MultiViewBags({"v": bags(), "w": bags()}), groups=[1, 2], splits={"new": [0, 1]})
    write(data, tmp_path / f"new{suffix}")
    assert_same(data, read(tmp_path / f"new{suffix}"))


def test_tables_of_others(tmp_path):
    pq.write_table(pa.table({"bag_id": ["x"], "embeddings": [[[1.0, 2.0]]]}), tmp_path / "new.parquet")
    assert not read(tmp_path / "new.parquet").has_labels
    with pytest.raises(DataError, match="no column 'tags' of labels"):
        read(tmp_path / "new.parquet", labels="tags")
    scipy_io.savemat(
        tmp_path / "new.mat", {"bags": np.array([np.ones((2, 3)), np.ones((1, 3))], dtype=object)}
    )
    assert not read(tmp_path / "new.mat").has_labels


def test_documents(tmp_path):
    (tmp_path / "vocabs.txt").write_text("bird, 0\nsings, 1\n")
    (tmp_path / "test-data.dat").write_text("<2> <3> 0 1 0 <1> 1\n<1> <1> 0\n")
    data = read(tmp_path)
    assert not data.has_labels and data.bags.sizes.tolist() == [2, 1]
    (tmp_path / "train-data.dat").write_text("<1> <1> 0\n")
    (tmp_path / "train-label.dat").write_text("1 0\n")
    with pytest.raises(DataError, match=r"the part test has no test-label\.dat"):
        read(tmp_path)
    assert read(tmp_path, part="train").has_labels


def test_label_names_alone_are_no_labels():
    with pytest.raises(DataError, match="1 label names, but no labels"):
        Dataset(bags(), None, ["wren"])


@pytest.mark.parametrize("ids", [None, [0, 1], [1, 0], ["0", "1"]])
def test_arff_ids_are_no_label(tmp_path, ids):
    data = Dataset(Bags(np.ones((2, 1)), [0, 1, 2], bag_ids=ids), [["wren"], []])
    write(data, tmp_path / "t.arff")
    again = read(tmp_path / "t.arff")
    assert again.label_names == ("wren",) and again.label_sets == [["wren"], []]
    assert again.bags.bag_ids.tolist() == [int(i) for i in data.bags.bag_ids]
    odd = Dataset(data.bags, [["id"], ["bag_id"]])
    write(odd, tmp_path / "t.arff")
    assert read(tmp_path / "t.arff").label_sets == [["id"], ["bag_id"]]
