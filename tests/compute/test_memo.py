"""Work that is done once: compared by contents, forgotten when room is short."""

from dataclasses import dataclass

import numpy as np
import pytest

from bagwise.compute.memo import remembered, shared_work, unchanging


def test_memory_compares_contents_and_forgets_the_longest_unused():
    calls = []

    @remembered
    def work(x, *, by=1.0):
        calls.append(by)
        return x * by

    x = np.arange(1000.0)
    with shared_work(limit=20_000):
        first = work(x, by=2.0)
        assert work(x.copy(), by=2.0) is first
        assert not first.flags.writeable
        assert work(x, by=np.float64(2.0)) is not first  # another type is another argument
        work(x, by=3.0), work(x, by=4.0)
        work(x, by=2.0)
    assert calls == [2.0, 2.0, 3.0, 4.0, 2.0]
    assert work(x, by=2.0).flags.writeable  # outside, nothing is kept
    with shared_work(), pytest.raises(TypeError, match="list"):
        work([1.0])


def test_arrays_that_do_not_change_are_looked_at_once():
    @dataclass(frozen=True)
    class Scale:
        by: np.ndarray

    calls = []

    @remembered
    def scaled(x, scale):
        calls.append(len(x))
        return x * scale.by, scale

    x, scale = np.arange(5.0), Scale(np.full(5, 2.0))
    unchanging(x)  # outside it says nothing
    with shared_work():
        unchanging(x)
        first, told = scaled(x, scale)
        x[0] = 7.0  # the promise is broken, so nobody looks
        assert scaled(x, scale)[0] is first
        assert scaled(np.arange(5.0), Scale(np.full(5, 2.0)))[0] is first  # the same contents elsewhere
        assert not told.by.flags.writeable
        again, _ = scaled(first, scale)  # a result: known without looking
        assert scaled(first, scale)[0] is again
        assert scaled(x.copy(), scale)[0] is not first
    assert calls == [5, 5, 5]


def test_what_is_larger_than_the_memory_is_not_kept():
    calls = []

    @remembered
    def ones(n):
        calls.append(n)
        return np.ones(n)

    with shared_work(limit=100):
        ones(1000), ones(1000)
    assert calls == [1000, 1000]
