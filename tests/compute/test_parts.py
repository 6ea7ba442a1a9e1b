"""Sums over parts: a fixed tree, arrays that arrive aligned, a journal that gives back what it was given."""

import pickle

import numpy as np
import pytest

from bagwise.compute.aligned import Carried, _pool, aligned, aligned_empty, memory_used_again
from bagwise.compute.journal import checkpoint
from bagwise.compute.parts import Parts, add, map_parts, map_reduce, ordered_sum, watched
from bagwise.compute.threads import read_ahead
from bagwise.errors import DataError
from bagwise.utils.store import content_hash


class Item:
    def __init__(self, value):
        self.value, self.key, self.name, self.n_bytes = value, str(value), str(value), 8

    def load(self):
        return self.value


def by_levels(values):
    """The tree written out: neighbours in pairs, again and again."""
    while len(values) > 1:
        values = [
            values[k] + values[k + 1] if k + 1 < len(values) else values[k] for k in range(0, len(values), 2)
        ]
    return values[0]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 31, 32, 33, 64, 1000, 1025])
def test_the_tree(n):
    values = np.random.default_rng(n).normal(size=n) * 10.0 ** np.arange(n).__mod__(9)
    expected = by_levels(list(values))
    assert ordered_sum(iter(values)) == expected
    for length in (1, 2, 4, 32, 128):  # whatever runs are added up elsewhere
        runs = [ordered_sum(values[k : k + length]) for k in range(0, n, length)]
        while len(runs) > 8:
            runs = [ordered_sum(runs[k : k + 8]) for k in range(0, len(runs), 8)]
        assert ordered_sum(runs) == expected


def step(power, value):
    return {"a": float(value) ** power, "b": (1, [np.full(2, value)])}


def test_map_reduce():
    parts = Parts([Item(k) for k in range(70)])
    found = map_reduce(step, 2, parts)
    assert found["a"] == sum(k**2 for k in range(70))
    assert found["b"][0] == 70 and found["b"][1][0].tolist() == [2415, 2415]
    assert [r["a"] for r in map_parts(step, 1, parts)] == list(range(70))
    assert map_reduce(lambda _, v: v, None, parts, max) == 69
    seen = []
    with watched(lambda name, k, n: seen.append((k, n))):
        map_reduce(step, 2, parts)
    assert seen[0] == (1, 70) and seen[-1] == (70, 70)


def test_statistics_of_another_form():
    with pytest.raises(ValueError, match="other names"):
        add({"a": 1}, {"b": 1})
    with pytest.raises(ValueError, match="other lengths"):
        add((1, 2), (1,))


def test_an_error_while_reading_ahead():
    def make(k):
        if k == 3:
            raise DataError("spoiled", path="part 3")
        return k

    got = []
    with pytest.raises(DataError, match="part 3"):
        for value in read_ahead(make, range(6)):
            got.append(value)
    assert got == [0, 1, 2]


def test_arrays_arrive_aligned():
    X = np.arange(1000, dtype=np.float32)[3:].reshape(-1, 1)
    value = {"X": X, "Xt": X.T, "name": "x", "rest": [np.arange(7)[1:]]}
    moved = aligned(value)
    assert moved["X"].ctypes.data % 64 == 0 and moved["rest"][0].ctypes.data % 64 == 0
    assert np.shares_memory(moved["X"], moved["Xt"])
    travelled = pickle.loads(pickle.dumps(Carried(value), protocol=5)).value
    np.testing.assert_array_equal(travelled["X"], X)
    assert travelled["X"].ctypes.data % 64 == 0 and np.shares_memory(travelled["X"], travelled["Xt"])


def test_the_journal(tmp_path):
    calls = []

    def counted(params, value):
        calls.append(value)
        return {"x": np.float64(value) / 3.0, "y": [np.arange(3.0) * value, None, "t", True, float("inf")]}

    def other(a, b):
        return {"x": a["x"] + b["x"], "y": [a["y"][0] + b["y"][0], *a["y"][1:]]}

    parts = Parts([Item(k) for k in range(3)])
    with checkpoint(tmp_path) as journal:
        first = map_reduce(counted, 1, parts, other)
    with checkpoint(tmp_path) as journal:
        again = map_reduce(counted, 1, parts, other)
        assert journal.n_known == 1 and len(calls) == 3
    assert again["x"] == first["x"] and again["y"][1:] == first["y"][1:]
    np.testing.assert_array_equal(again["y"][0], first["y"][0])
    with checkpoint(tmp_path), pytest.raises(DataError, match="not the fit that was stopped"):
        map_reduce(counted, 2, parts, other)
    (tmp_path / "letter.txt").write_text("x")
    with pytest.raises(DataError, match="other files"), checkpoint(tmp_path):
        pass


def test_hashes_see_values_alone():
    one = {"a": np.arange(4.0), "b": ("x" * 3, 1.5)}
    same = {"a": np.arange(8.0)[:4].copy(), "b": ("xx" + "x", 1.5)}
    assert content_hash(one) == content_hash(same)
    assert content_hash(one) != content_hash({**same, "b": ("xxx", 1.25)})
    assert content_hash(np.zeros(2)) != content_hash(np.zeros(2, np.float32))


def test_memory_is_used_again_only_when_nothing_holds_it():
    with memory_used_again():
        first = aligned_empty((300_000,), np.float64)
        first[:] = 1.0
        kept = first[10:20]  # a view of a view keeps all of it
        where = first.ctypes.data
        del first
        other = aligned_empty((300_000,), np.float64)
        other[:] = 2.0
        assert other.ctypes.data != where and (kept == 1.0).all()
        del kept
        again = aligned_empty((299_000,), np.float64)
        assert again.ctypes.data == where and again.ctypes.data % 64 == 0
        again[:] = 3.0
        assert (other == 2.0).all()
        del again
        less = aligned_empty((150_000,), np.float64)  # the last part may be smaller
        assert less.ctypes.data == where
        del less
        tiny = aligned_empty((20_000,), np.float64)  # not worth a piece as large
        assert tiny.ctypes.data != where and len(_pool.pieces) == 1
        large = aligned_empty((900_000,), np.float64)  # nor does a small one wait where arrays have grown
        assert large.ctypes.data != where and not _pool.pieces
    del other  # after the last stream nothing waits
    assert aligned_empty((300_000,), np.float64).flags.writeable
