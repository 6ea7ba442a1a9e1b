"""The checks that readers share, and what a Parquet footer claims."""

import contextlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_sets import small_set
from scipy import sparse

from bagwise.bags import first_not_finite
from bagwise.errors import DataError
from bagwise.io import write
from bagwise.io._parquet_pages import claimed_bytes
from bagwise.io._source import check_finite, check_unique_ids, damaged


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("place", [(0, 0), (2, 1), (4, 2)])
def test_first_bad_value_is_named(value, make, place):
    X = np.arange(1.0, 16.0).reshape(5, 3)
    X[place] = value
    X[4, 2] = value
    bag = "abc"[int(np.searchsorted([0, 1, 3, 5], place[0], side="right")) - 1]
    with pytest.raises(DataError, match=f"f.x, line {place[0] + 10}: bag '{bag}', feature {place[1]} is"):
        check_finite(make(X), [0, 1, 3, 5], list("abc"), "f.x", line_of_row=range(10, 15))


def test_bad_value_after_an_empty_bag():
    with pytest.raises(DataError, match="bag 2, feature 'w' is nan"):
        check_finite(np.array([[1.0], [np.nan]]), [0, 1, 1, 2], None, "f.x", feature_names=["w"])


@pytest.mark.parametrize(("dtype", "large"), [(np.float32, 3e38), (np.float64, 1.7e308)])
def test_large_values_are_finite(dtype, large):
    X = np.full((3, 2), large, dtype=dtype)
    with np.errstate(over="ignore"):
        assert np.isinf(X.sum())  # which is what is looked at first
    assert first_not_finite(X) is None
    check_finite(X, [0, 3], ["a"], "f.x")
    X[2, 1] = np.inf
    with pytest.raises(DataError, match="bag 'a', feature 1 is inf"):
        check_finite(X, [0, 3], ["a"], "f.x")


@pytest.mark.parametrize("shape", [(0, 2), (2, 0)])
def test_no_values_are_finite(shape):
    assert first_not_finite(np.empty(shape)) is None
    assert first_not_finite(sparse.csr_array(shape)) is None


@given(st.lists(st.integers(0, 5)))
def test_ids(ids):
    if len(set(ids)) == len(ids):
        check_unique_ids(ids, "f.x")
    else:
        second = next(k for k, i in enumerate(ids) if i in ids[:k])
        with pytest.raises(DataError) as caught:
            check_unique_ids(ids, "f.x", line_of_bag=range(len(ids)))
        assert caught.value.line == second


def test_damaged_keeps_what_is_known_and_the_cause():
    with pytest.raises(DataError, match=r"f\.x, line 3: two"), damaged("f.x", "good"):
        raise DataError("two", line=3)
    expected = r"f\.x: not good, or damaged \(ZeroDivisionError: "
    with pytest.raises(DataError, match=expected) as caught, damaged("f.x", "good"):
        _ = 1 / 0
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(KeyboardInterrupt), damaged("f.x", "good"):
        raise KeyboardInterrupt


def footer(path):
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    return content[-8 - length : -8]


def test_footer_claims_what_pyarrow_finds(tmp_path):
    path = tmp_path / "set.parquet"
    write(small_set(), path)
    many = pa.table({"x": [[[1.0, 2.0]]] * 40, "ok": [True, None] * 20, "labels": [["é"] * 30] * 40})
    pq.write_table(many, tmp_path / "many.parquet", row_group_size=7)
    for name in ("set", "many"):
        facts = pq.read_metadata(tmp_path / f"{name}.parquet")
        expected = 0
        for k in range(facts.num_row_groups):
            for c in range(facts.num_columns):
                chunk = facts.row_group(k).column(c)
                expected += max(chunk.total_uncompressed_size, 4 * chunk.num_values)
        assert claimed_bytes(footer(tmp_path / f"{name}.parquet")) == expected


@given(st.binary(max_size=60))
def test_any_footer_is_read_or_refused(content):
    with contextlib.suppress(DataError, AttributeError, TypeError):  # the reader makes these one error
        assert claimed_bytes(content) >= 0


def test_footer_with_endless_nesting():
    with pytest.raises(DataError, match="nested too deep"):
        claimed_bytes(b"\x1c" * 100_000)
