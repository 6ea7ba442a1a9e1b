"""Hausdorff distances against a loop over pairs of bags."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from bagwise.errors import DataError
from bagwise.models.distance import kernels as hausdorff
from bagwise.models.distance.kernels import hausdorff_distances

KINDS = ("max", "average", "min")


def numpy_twin(X, offsets, Z, z_offsets, kind):
    X, Z = np.asarray(X, dtype=np.float64), np.asarray(Z, dtype=np.float64)
    out = np.empty((len(offsets) - 1, len(z_offsets) - 1))
    for a in range(out.shape[0]):
        for b in range(out.shape[1]):
            A, C = X[offsets[a] : offsets[a + 1]], Z[z_offsets[b] : z_offsets[b + 1]]
            D = np.array([[np.sqrt(np.sum((x - z) ** 2)) for z in C] for x in A])
            r, c = D.min(axis=1), D.min(axis=0)
            out[a, b] = {
                "max": max(r.max(), c.max()),
                "average": (r.sum() + c.sum()) / (len(A) + len(C)),
                "min": D.min(),
            }[kind]
    return out


def random_bags(rng, n_bags, n_features, largest=5, density=1.0):
    sizes = rng.integers(1, largest + 1, n_bags)
    X = rng.normal(size=(sizes.sum(), n_features))
    X[rng.random(X.shape) >= density] = 0.0
    return X, np.concatenate([[0], np.cumsum(sizes)])


def test_worked_example():
    X, offsets = np.array([[0.0], [1.0], [0.0], [3.0]]), np.array([0, 2, 4])
    for kind, expected in zip(KINDS, (2.0, 0.75, 0.0)):
        np.testing.assert_array_equal(
            hausdorff_distances(X, offsets, kind=kind), [[0.0, expected], [expected, 0.0]]
        )


@pytest.mark.parametrize("kind", KINDS)
def test_maximum_looks_in_both_directions(kind):
    X, Z = np.array([[0.0]]), np.array([[0.0], [5.0]])
    one, two = np.array([0, 1]), np.array([0, 2])
    there, back = (
        hausdorff_distances(X, one, Z, two, kind=kind),
        hausdorff_distances(Z, two, X, one, kind=kind),
    )
    assert there.item() == back.item() == {"max": 5.0, "average": 5.0 / 3.0, "min": 0.0}[kind]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 7),
    st.integers(1, 7),
    st.sampled_from([0, 1, 3, 4, 5, 9]),
    st.sampled_from(KINDS),
    st.sampled_from([0.05, 0.5, 1.0]),
)
def test_equals_numpy_twin(seed, n_rows, n_columns, n_features, kind, density):
    rng = np.random.default_rng(seed)
    X, offsets = random_bags(rng, n_rows, n_features, density=density)
    Z, z_offsets = random_bags(rng, n_columns, n_features, density=density)
    expected = numpy_twin(X, offsets, Z, z_offsets, kind)
    for left in (X, sparse.csr_array(X)):
        for right in (Z, sparse.csr_array(Z)):
            got = hausdorff_distances(left, offsets, right, z_offsets, kind=kind)
            np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)
        got = hausdorff_distances(left, offsets, kind=kind)
        np.testing.assert_allclose(got, numpy_twin(X, offsets, X, offsets, kind), rtol=1e-10, atol=1e-10)
        np.testing.assert_array_equal(got, got.T)
        np.testing.assert_array_equal(np.diag(got), 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_bags_wider_than_a_chunk(kind):
    rng = np.random.default_rng(0)
    sizes = np.array([3, 700, 1, 511, 2, 512, 40])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.normal(size=(offsets[-1], 2))
    z_offsets = np.array([0, 2, 5])
    got = hausdorff_distances(X[:5], z_offsets, X, offsets, kind=kind)
    np.testing.assert_allclose(got, numpy_twin(X[:5], z_offsets, X, offsets, kind), rtol=1e-12)
    whole = hausdorff_distances(X, offsets, kind=kind)
    np.testing.assert_array_equal(whole, hausdorff_distances(X, offsets, X, offsets, kind=kind))


@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_equal_bags_are_at_distance_zero(as_rows):
    rng = np.random.default_rng(1)
    X, offsets = random_bags(rng, 6, 20, density=0.1)
    X *= 1e3
    twice, both = np.vstack([X, X]), np.concatenate([offsets, offsets[1:] + offsets[-1]])
    D = hausdorff_distances(as_rows(twice), both, kind="max")
    np.testing.assert_array_equal(np.diag(D, 6), 0.0)


@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("kind", KINDS)
def test_neither_threads_nor_neighbours_change_a_bit(as_rows, kind, monkeypatch):
    rng = np.random.default_rng(2)
    X, offsets = random_bags(rng, 90, 11, largest=20, density=0.12)
    X = as_rows(X)
    D = hausdorff_distances(X, offsets, kind=kind)
    monkeypatch.setattr(hausdorff, "_WORTH_A_THREAD", 1)
    for n_threads in (1, 3):
        monkeypatch.setattr(hausdorff, "cores", lambda n=n_threads: n)
        np.testing.assert_array_equal(hausdorff_distances(X, offsets, kind=kind), D)
    lo, hi = offsets[40], offsets[43]
    some = hausdorff_distances(X[lo:hi], offsets[40:44] - lo, X, offsets, kind=kind)
    alone = hausdorff_distances(X[lo : offsets[41]], offsets[40:42] - lo, X, offsets, kind=kind)
    np.testing.assert_array_equal(some[:1], alone)
    np.testing.assert_allclose(some, D[40:43], rtol=1e-12)


@pytest.mark.parametrize("dense_from", [0.0, 2.0])
def test_sparse_rows_in_blocks(monkeypatch, dense_from):
    monkeypatch.setattr(hausdorff, "_CELLS", 60)
    monkeypatch.setattr(hausdorff, "_DENSE_FROM", dense_from)
    rng = np.random.default_rng(3)
    X, offsets = random_bags(rng, 30, 7, largest=12, density=0.3)
    Z, z_offsets = random_bags(rng, 20, 7, density=0.3)
    for kind in KINDS:
        expected = numpy_twin(X, offsets, Z, z_offsets, kind)
        got = hausdorff_distances(sparse.csr_array(X), offsets, sparse.csr_array(Z), z_offsets, kind=kind)
        np.testing.assert_allclose(got, expected, rtol=1e-10)
        got = hausdorff_distances(sparse.csr_array(X), offsets, Z, z_offsets, kind=kind)
        np.testing.assert_allclose(got, expected, rtol=1e-10)
        got = hausdorff_distances(sparse.csr_array(X), offsets, kind=kind)
        np.testing.assert_allclose(got, numpy_twin(X, offsets, X, offsets, kind), rtol=1e-10, atol=1e-12)


def test_number_types_read_only_and_unsorted_rows():
    rng = np.random.default_rng(4)
    X, offsets = random_bags(rng, 8, 5)
    expected = hausdorff_distances(X, offsets)
    single = X.astype(np.float32)
    np.testing.assert_allclose(hausdorff_distances(single, offsets), expected, rtol=1e-5)
    assert hausdorff_distances(single, offsets).dtype == np.float64
    X.flags.writeable = offsets.flags.writeable = False
    np.testing.assert_array_equal(hausdorff_distances(X, offsets.astype(np.int32)), expected)
    thin = np.where(np.abs(X) > 1.0, X, 0.0)
    csr = sparse.csr_array(thin)
    messy = sparse.csr_array((csr.data.copy(), csr.indices.copy(), csr.indptr.copy()), shape=csr.shape)
    for a, b in zip(messy.indptr[:-1], messy.indptr[1:]):
        messy.data[a:b], messy.indices[a:b] = messy.data[a:b][::-1].copy(), messy.indices[a:b][::-1].copy()
    messy.has_sorted_indices = messy.has_canonical_format = False
    np.testing.assert_allclose(
        hausdorff_distances(messy, offsets), hausdorff_distances(thin, offsets), rtol=1e-12
    )


def test_what_is_refused():
    X, offsets = np.ones((3, 2)), np.array([0, 1, 3])
    with pytest.raises(ValueError, match="kind must be one of max, average, min"):
        hausdorff_distances(X, offsets, kind="mean")
    with pytest.raises(DataError, match="bag 1 is empty"):
        hausdorff_distances(X, np.array([0, 1, 1, 3]))
    with pytest.raises(DataError, match="from 0 to the number of instances, 3"):
        hausdorff_distances(X, np.array([0, 2]))
    with pytest.raises(DataError, match="one-dimensional array"):
        hausdorff_distances(X, np.array([0.0, 3.0]))
    with pytest.raises(DataError, match="2 and 1 features"):
        hausdorff_distances(X, offsets, np.ones((1, 1)), np.array([0, 1]))
    with pytest.raises(DataError, match="received shape"):
        hausdorff_distances(np.ones(3), offsets)
    assert hausdorff_distances(X[:0], np.array([0]), X, offsets).shape == (0, 2)
