"""Stores: entries are whole or not there, lines survive company and kills, a folder has one owner."""

import json
import multiprocessing
import os
import warnings

import numpy as np
import pytest

from bagwise.errors import BagwiseError, DataError, listed, quoted, warn
from bagwise.models import MIMLDummy
from bagwise.utils.store import AppendOnlyFile, Entries, content_hash, file_hash, locked


class Lines(AppendOnlyFile):
    def _forget(self):
        super()._forget()
        self.taken = []

    def _take(self, line):
        try:
            self.taken.append(json.loads(line))
        except ValueError:
            self.taken.append(None)


def test_any_structure_comes_back(tmp_path):
    entries = Entries(tmp_path / "new")
    value = {
        "a": np.arange(3.0),
        1: (True, None, 2, 0.1, "ä"),
        "n": [np.float32(0.5), np.array([[1]], dtype=np.int8), {}],
        "nan": float("nan"),
    }
    entries.put("ab/cd", value)
    again = entries.read("ab/cd")
    assert list(again) == list(value) and again[1] == value[1]
    np.testing.assert_array_equal(again["a"], value["a"])
    assert again["n"][0] == 0.5 and again["n"][0].dtype == np.float32
    np.testing.assert_array_equal(again["n"][1], value["n"][1])
    assert again["n"][2] == {} and np.isnan(again["nan"])
    with pytest.raises(TypeError, match="no set"):
        entries.put("e", {1, 2})
    assert "e" not in entries and entries.keys() == [] and "ab/cd" in entries


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_damaged_entries_are_told_from_missing_ones(tmp_path, suffix):
    entries = Entries(tmp_path, suffix)
    entries.put("k", {"text": "as it was", "number": 3})
    assert entries.get("k") == {"text": "as it was", "number": 3}
    path = entries.path("k")
    whole = path.read_bytes()
    code = "utf-32-le" if suffix == ".npz" else "utf-8"
    other = whole.replace("as it was".encode(code), "as it is!".encode(code))
    assert other != whole
    for broken in (b"", whole[: len(whole) // 2], other):
        path.write_bytes(broken)
        assert entries.get("k") is None
        with pytest.raises(DataError, match="damaged"):
            entries.read("k")
    entries.drop("k")
    with pytest.raises(KeyError):
        entries.read("k")
    assert entries.get("k") is None and entries.keys() == []


def test_json_entries_of_before_have_no_checksum(tmp_path):
    (tmp_path / "old.json").write_text('{"a": 1}')
    assert Entries(tmp_path, ".json").read("old") == {"a": 1}


def test_hashes_are_of_contents(tmp_path):
    mapped = np.lib.format.open_memmap(tmp_path / "a.npy", mode="w+", dtype=np.float64, shape=(2, 3))
    assert content_hash(mapped) != content_hash(mapped.T)
    assert content_hash(np.array(["a", "b"])) != content_hash(np.array(["a", "c"]))
    assert content_hash(np.array(["2020-01-01"], dtype="M8[D]")) == content_hash(
        np.array(["2020"], dtype="M8[D]")
    )
    assert content_hash(np.empty((0, 2))) != content_hash(np.empty((0, 3)))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_text("1")
    before = file_hash(tmp_path / "folder")
    (tmp_path / "folder" / "x").rename(tmp_path / "folder" / "y")
    assert file_hash(tmp_path / "folder") != before
    assert file_hash(tmp_path / "folder" / "y") == file_hash(tmp_path / "folder" / "y")


def _append(path, who):
    lines = Lines(path)
    for k in range(50):
        lines._append({"who": who, "k": k})


def test_lines_of_several_programs(tmp_path):
    path = tmp_path / "new" / "lines.jsonl"
    programs = [
        multiprocessing.get_context("spawn").Process(target=_append, args=(path, w)) for w in range(2)
    ]
    for program in programs:
        program.start()
    for program in programs:
        program.join()
    lines = Lines(path)
    assert sorted((line["who"], line["k"]) for line in lines.taken) == [
        (w, k) for w in range(2) for k in range(50)
    ]


def test_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "lines.jsonl"
    first, second = Lines(path), Lines(path)
    first._append({"a": 1})
    with open(path, "ab") as file:
        file.write(b'{"cut": ')
    assert second.refresh() and second.taken == [{"a": 1}]
    first._append({"b": 2})
    assert second.refresh() and second.taken == [{"a": 1}, None, {"b": 2}]
    os.replace(path, tmp_path / "other")
    assert second.refresh() and second.taken == []
    with pytest.raises(DataError, match="at most"):
        first._append({"long": "x" * 100_000})


def test_one_owner_at_a_time(tmp_path):
    with (
        locked(tmp_path / "new"),
        pytest.raises(BagwiseError, match="at work"),
        locked(tmp_path / "new", busy="somebody is at work"),
    ):
        pass
    with locked(tmp_path / "new", busy="free again"):
        pass


def test_warnings_name_the_line_of_the_user():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        MIMLDummy().fit([[[1.0]], [[2.0]], [[3.0]]], np.array([[1], [2], [3]]))
        warn("here")
    assert [warning.filename for warning in said] == [__file__, __file__]


def test_lists_of_names():
    assert (
        listed([]) == ""
        and listed("ab", 2) == "a, b"
        and listed(range(9), 3, show=quoted) == "0, 1, 2 and 6 more"
    )
