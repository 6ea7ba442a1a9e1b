"""Segment kernels against plain loops over bags."""

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise.compute import segment
from bagwise.compute.segment import (
    segment_argmax,
    segment_logsumexp,
    segment_max,
    segment_mean,
    segment_softmax,
    segment_sum,
)
from bagwise.errors import DataError

ALL = [segment_sum, segment_mean, segment_max, segment_argmax, segment_logsumexp, segment_softmax]


def logsumexp_1d(x):
    """Plain definition on Python floats."""
    if x.size == 0:
        return -np.inf
    top = x.max()
    return top if not np.isfinite(top) else top + np.log(np.exp(x - top).sum())


def softmax_1d(x):
    top = x.max()
    e = np.array([1.0 if v == top else np.exp(v - top) for v in x])
    return e / e.sum() if top == top else np.full(x.size, np.nan)


def twin(function, X, offsets):
    """One column of one bag at a time, in float64."""
    X = np.asarray(X, dtype=np.float64)
    n_bags, k = len(offsets) - 1, X.shape[1]
    if function is segment_softmax:
        out = np.empty_like(X)
        for lo, hi in zip(offsets[:-1], offsets[1:]):
            for j in range(k if hi > lo else 0):
                out[lo:hi, j] = softmax_1d(X[lo:hi, j])
        return out
    out = np.empty((n_bags, k))
    for b in range(n_bags):
        lo, hi = offsets[b], offsets[b + 1]
        for j in range(k):
            x = X[lo:hi, j]
            if function is segment_sum:
                out[b, j] = x.sum()
            elif function is segment_mean:
                out[b, j] = x.mean() if x.size else np.nan
            elif function is segment_max:
                out[b, j] = x.max() if x.size else -np.inf
            elif function is segment_argmax:
                out[b, j] = lo + np.argmax(x) if x.size else -1
            else:
                out[b, j] = logsumexp_1d(x)
    return out


@st.composite
def ragged(draw, special=False):
    sizes = draw(st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 7, 40]), min_size=0, max_size=12))
    k = draw(st.sampled_from([0, 1, 2, 5, 33]))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
    X = (rng.standard_normal((offsets[-1], k)) * draw(st.sampled_from([1.0, 100.0]))).astype(dtype)
    if draw(st.booleans()):
        X = np.round(X)  # ties
    if special:
        big = np.finfo(dtype).max
        values = np.array([np.inf, -np.inf, np.nan, 0.9 * big, -0.9 * big, 0.0], dtype=dtype)
        where = rng.random(X.shape) < draw(st.sampled_from([0.05, 0.5, 1.0]))
        X = np.where(where, rng.choice(values, X.shape), X)
    return X, offsets


def close(got, expected, dtype, scale=1.0):
    # Absolute errors are relative to the largest number involved: sums may cancel.
    rtol = 3e-6 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol * scale)


@settings(max_examples=60, deadline=None)
@given(ragged())
def test_each_function_equals_a_loop_over_bags(data):
    X, offsets = data
    scale = float(np.abs(X).max()) * len(X) if X.size else 1.0
    for function in ALL:
        got = function(X, offsets)
        expected = twin(function, X, offsets)
        assert got.shape == expected.shape
        assert got.dtype == (np.int64 if function is segment_argmax else X.dtype)
        if function in (segment_max, segment_argmax):
            np.testing.assert_array_equal(got, expected)
        elif function in (segment_sum, segment_mean):
            close(got, expected, X.dtype, scale if X.dtype == np.float64 else 0.0)
        else:
            close(got, expected, X.dtype)


@settings(max_examples=60, deadline=None)
@given(ragged(special=True))
def test_nan_infinities_and_huge_values(data):
    X, offsets = data
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for function in ALL:
            expected = twin(function, X, offsets)
            got = function(X, offsets)
            if function in (segment_sum, segment_mean):
                # Near the top of the range the order of addition decides about overflow.
                biggest = twin(segment_max, np.where(np.isfinite(X), np.abs(X), 0), offsets)
                tame = biggest < 1e30
                close(got[tame], expected[tame], X.dtype, 1e5)
                assert np.isnan(got[np.isnan(expected) & np.isnan(twin(segment_max, X, offsets))]).all()
            else:
                close(got, expected, X.dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_empty_bags_give_the_identities(dtype):
    X, offsets = np.ones((1, 2), dtype), np.array([0, 0, 1, 1])
    for function, identity in [
        (segment_sum, 0.0),
        (segment_mean, np.nan),
        (segment_max, -np.inf),
        (segment_argmax, -1),
        (segment_logsumexp, -np.inf),
    ]:
        np.testing.assert_array_equal(function(X, offsets)[[0, 2]], np.full((2, 2), identity))
        np.testing.assert_array_equal(function(X[:0], np.array([0, 0])), np.full((1, 2), identity))
        assert function(X[:0], np.array([0])).shape == (0, 2)


def test_logsumexp_and_softmax_at_the_limits():
    big = 1e300
    inf = np.inf
    bags = [[big, big], [-big, -big], [inf, -inf], [-inf, -inf], [-inf, 3.0], [big, -big], [np.nan, inf]]
    X, offsets = np.concatenate(bags), np.arange(0, 15, 2)
    np.testing.assert_array_equal(segment_logsumexp(X, offsets), [big, -big, inf, -inf, 3.0, big, np.nan])
    weights = [[0.5, 0.5], [0.5, 0.5], [1, 0], [0.5, 0.5], [0, 1], [1, 0], [np.nan, np.nan]]
    np.testing.assert_array_equal(segment_softmax(X, offsets).reshape(-1, 2), weights)


def test_first_of_ties_and_first_nan_win():
    X = np.array([1.0, 3.0, 3.0, np.nan, 5.0, np.nan])
    np.testing.assert_array_equal(segment_argmax(X, np.array([0, 3, 6])), [1, 3])


def test_float32_sums_are_rounded_once():
    X = np.full(1_000_000, 0.1, np.float32)
    exact = np.float32(np.float64(np.float32(0.1)) * 1_000_000)
    assert segment_sum(X, np.array([0, 1_000_000]))[0] == exact


def test_one_dimension_is_one_column():
    X, offsets = np.random.default_rng(0).standard_normal(9), np.array([0, 4, 4, 9])
    for function in ALL:
        np.testing.assert_array_equal(function(X, offsets), function(X[:, None], offsets)[:, 0])


@settings(max_examples=30, deadline=None)
@given(ragged())
def test_offsets_and_index_are_two_spellings(data):
    X, offsets = data
    index = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    total = np.zeros((len(offsets) - 1, X.shape[1]))
    np.add.at(total, index, X.astype(np.float64))
    top = np.full(total.shape, -np.inf)
    np.maximum.at(top, index, X.astype(np.float64))
    np.testing.assert_array_equal(segment_sum(X, offsets), total.astype(X.dtype))
    np.testing.assert_array_equal(segment_max(X, offsets), top)


def test_read_only_memory_maps_other_layouts_and_types(tmp_path):
    rng = np.random.default_rng(1)
    X, offsets = rng.integers(-5, 6, (50, 6)).astype(float), np.array([0, 9, 9, 10, 50])
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "offsets.npy", offsets)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r"), np.load(tmp_path / "offsets.npy", mmap_mode="r")
    for function in ALL:
        expected = function(X, offsets)
        for Z, o in [
            mapped,
            (np.asfortranarray(X), offsets.astype(np.int32)),
            (np.repeat(X, 2, axis=1)[:, ::2], offsets.tolist()),
            (X.astype(np.int8), offsets),
            (X.astype(">f8"), offsets),
        ]:
            np.testing.assert_array_equal(function(Z, o), expected)
    assert X.flags.writeable  # the caller's arrays keep their flags
    assert offsets.flags.writeable


def test_the_number_of_threads_changes_nothing(monkeypatch):
    rng = np.random.default_rng(2)
    sizes = rng.choice([0, 1, 5, 300], 400)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.standard_normal((offsets[-1], 7)).astype(np.float32)
    monkeypatch.setattr(segment, "_WORTH_A_THREAD", 1)
    results = []
    for n_threads in (1, 2, 7):
        monkeypatch.setattr(segment, "cores", lambda n=n_threads: n)
        results.append([function(X, offsets).tobytes() for function in ALL])
    assert results[0] == results[1] == results[2]


def test_one_compilation_whatever_comes():
    for X in (np.ones((3, 2)), np.ones((2, 3)).T, np.ones(3), np.ones((3, 2), int)):
        for flag in (True, False):
            X.flags.writeable = flag
            segment_max(X, np.array([0, 1, 3]))
    assert len([s for s in segment._maxima.signatures if s[2].dtype.name == "float64"]) == 1


@pytest.mark.parametrize(
    ("X", "offsets", "message"),
    [
        (np.ones((2, 2, 2)), [0, 2], "received shape"),
        (np.ones((3, 2)), [0, 2], "number of instances, 3"),
        (np.ones((3, 2)), [1, 3], "from 1 to 3"),
        (np.ones((3, 2)), [0, 2, 1, 3], "bag 1 runs from 2 to 1"),
        (np.ones((3, 2)), [0.0, 3.0], "integers"),
        (np.ones((3, 2)), [[0, 3]], "one-dimensional"),
        (np.ones((0, 2)), np.array([], dtype=np.int64), "n_bags"),
    ],
)
def test_wrong_input_is_refused(X, offsets, message):
    for function in ALL:
        with pytest.raises(DataError, match=message):
            function(X, offsets)


def test_without_the_compiler():
    code = """
import numpy as np
from bagwise.compute.segment import *
X, offsets = np.array([[1.0, -np.inf], [2.0, 5.0], [4.0, np.nan]], np.float32), np.array([0, 2, 2, 3])
np.testing.assert_array_equal(segment_sum(X, offsets)[:, 0], [3, 0, 4])
np.testing.assert_array_equal(segment_mean(X, offsets)[:, 0], [1.5, np.nan, 4])
np.testing.assert_array_equal(segment_max(X, offsets), [[2, 5], [-np.inf] * 2, [4, np.nan]])
np.testing.assert_array_equal(segment_argmax(X, offsets), [[1, 1], [-1, -1], [2, 2]])
np.testing.assert_allclose(segment_logsumexp(X, offsets)[:, 0], [2.3132617, -np.inf, 4], rtol=1e-6)
weights = [[0.26894143, 0], [0.7310586, 1], [1, np.nan]]
np.testing.assert_allclose(segment_softmax(X, offsets), weights, rtol=1e-6)
"""
    subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", code],
        check=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )
