"""One door: content before suffix, gzip, folders, and refusals that say what is known."""

import gzip
import shutil
from importlib import import_module

import numpy as np
import pytest
from random_sets import assert_same, small_set

from bagwise import Bags, Dataset
from bagwise.errors import DataError
from bagwise.io import formats, read, write
from bagwise.io._source import read_bytes
from bagwise.io.files import _FORMATS, _find


def plain_set():
    return Dataset(Bags(np.arange(6.0).reshape(3, 2), [0, 2, 3], bag_ids=["a", "b"]), [["x"], ["y"]])


def test_table_of_formats():
    table = {f.name: f for f in formats()}
    assert {"parquet", "npz", "csv", "matlab", "arff", "arff-pair", "c45", "sentences"} == set(table)
    for f in table.values():
        assert f.reads
        assert f.description
        assert all(s == s.lower() and not s.endswith(".gz") for s in f.suffixes)
    assert {"parquet", "npz", "csv"} <= {f.name for f in table.values() if f.writes}


def test_the_table_says_what_the_modules_say():
    for name, row in _FORMATS.items():
        module = import_module(f"bagwise.io.{name}")
        assert (row.reads, row.writes) == (hasattr(module, "read"), hasattr(module, "write"))


@pytest.mark.parametrize("name", [f.name for f in formats() if f.writes])
def test_what_is_written_is_recognised_whatever_its_suffix(tmp_path, name):
    suffix = next(f.suffixes[0] for f in formats() if f.name == name)
    path = tmp_path / f"set{suffix}"
    write(plain_set(), path)
    assert name == _FORMATS[_find(path)].name
    other = tmp_path / "download.bin"
    shutil.copy(path, other)
    assert name == _FORMATS[_find(other)].name
    again = read(other)
    np.testing.assert_array_equal(again.bags.X, plain_set().bags.X)
    assert again.label_sets == [["x"], ["y"]]


@pytest.mark.parametrize("name", [f.name for f in formats() if f.writes])
def test_gzip_of_everything_reads(tmp_path, name):
    suffix = next(f.suffixes[0] for f in formats() if f.name == name)
    write(plain_set(), tmp_path / f"set{suffix}")
    packed = tmp_path / f"packed{suffix}.gz"
    packed.write_bytes(gzip.compress((tmp_path / f"set{suffix}").read_bytes()))
    assert read(packed).label_sets == [["x"], ["y"]]


LEGACY = {
    "arff": ("toy.arff", "@relation t\n@attribute id {a}\n@attribute bag relational\n@attribute f1 numeric\n"
             "@end bag\n@attribute wren {0,1}\n@data\na,\"1\\n2\",1\n"),
    "c45": ("toy.data", "mol-1,c-1,1,2,1.\nmol-2,c-1,3,4,0.\n"),
    "csv": ("toy.csv", "1,7,0.5,2\n0,9,1,1\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(LEGACY))
def test_older_formats_are_recognised(tmp_path, name):
    file, text = LEGACY[name]
    (tmp_path / file).write_text(text)
    assert name == _FORMATS[_find(tmp_path / file)].name
    with gzip.open(tmp_path / f"{file}.gz", "wt") as handle:
        handle.write(text)
    assert name == _FORMATS[_find(tmp_path / f"{file}.gz")].name


def test_pair_and_sentence_folder_are_recognised(tmp_path):
    (tmp_path / "toy_1.arff").write_text(
        "@relation t\n@attribute f numeric\n@attribute c numeric\n@data\n1,0\n"
    )
    (tmp_path / "toy_2.arff").write_text(
        "@relation t\n@attribute n numeric\n@attribute c numeric\n@data\n1,0\n"
    )
    assert _FORMATS[_find(tmp_path / "toy_1.arff")].name == "arff-pair"
    assert _FORMATS[_find(tmp_path / "toy")].name == "arff-pair"
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "train-data.dat").write_text("<1> <2> 0 1\n")
    (folder / "train-label.dat").write_text("1 0\n")
    (folder / "vocabs.txt").write_text("cat, 0\ndog, 1\n")
    assert _FORMATS[_find(folder)].name == "sentences"


def test_missing_path(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.csv: no such file"):
        read(tmp_path / "nowhere.csv")
    with pytest.raises(DataError, match=r"nowhere\.csv: no such file"):
        read(tmp_path / "nowhere.csv", format="csv")


@pytest.mark.parametrize("name", ["parquet", "npz", "csv", "matlab", "arff", "c45"])
def test_missing_and_folder_in_every_format(tmp_path, name):
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(DataError, match=str(path)):
            read(path, format=name)


def test_unknown_content_lists_what_is_known(tmp_path):
    path = tmp_path / "song.mp3"
    path.write_bytes(b"ID3\0\0")
    with pytest.raises(DataError, match=r"song\.mp3: not in a format known here; known are parquet .*csv"):
        read(path)
    with pytest.raises(DataError, match="unknown format 'mp3'; known are parquet"):
        read(path, format="mp3")
    plain_set().bags.save(tmp_path / "saved")
    with pytest.raises(DataError, match="not in a format known here"):
        read(tmp_path / "saved")


def test_unknown_suffix_and_format_for_writing(tmp_path):
    with pytest.raises(DataError, match=r"no writer for the suffix '\.xyz'; .*\.parquet"):
        write(plain_set(), tmp_path / "set.xyz")
    with pytest.raises(DataError, match="no writer for the format 'c45'"):
        write(plain_set(), tmp_path / "set.data", format="c45")
    with pytest.raises(TypeError, match="write takes a Dataset"):
        write(plain_set().bags, tmp_path / "set.parquet")
    assert list(tmp_path.iterdir()) == []


def test_format_beats_suffix(tmp_path):
    write(small_set(), tmp_path / "set.dat", format="npz")
    assert_same(small_set(), read(tmp_path / "set.dat"))


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "set.npz"
    write(small_set(), path)
    before = path.read_bytes()

    def fail(handle, **arrays):
        handle.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        write(plain_set(), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["set.npz"]


def test_suffix_of_any_case(tmp_path):
    write(small_set(), tmp_path / "SET.PARQUET")
    assert_same(small_set(), read(tmp_path / "SET.PARQUET"))


@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".csv"])
def test_what_could_not_be_read_is_not_written(tmp_path, suffix):
    nan = Dataset(Bags(np.array([[np.nan]]), [0, 1], bag_ids=["a"]), [["x"]])
    with pytest.raises(DataError, match="bag 'a', feature 0 is nan"):
        write(nan, tmp_path / f"set{suffix}")
    with pytest.raises(DataError, match="the bag id 'a' occurs twice"):
        write(plain_set()[[0, 0]], tmp_path / f"set{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_grows_or_does_not_know_its_size(tmp_path):
    assert len(read_bytes("/proc/self/status")) > 100  # says that it has 0 bytes
    path = tmp_path / "x"
    path.write_bytes(b"x" * 1000)
    assert len(read_bytes(path)) == len(read_bytes(path, 1000)) == 1000
    with pytest.raises(DataError, match="more than 999 bytes"):
        read_bytes(path, 999)
