"""Kernels between instances, averaged over pairs of bags, without storing the pairs.

The loops are those of the Gaussian kernel, Eq. (2) of MIML-GP: ``k(x, x') = exp(-|x - x'|^2 / delta^2)``;
``rate`` is ``1 / delta^2``. Columns come transposed, one row per feature, so that the loop over instances
runs along neighbouring numbers and is vectorised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags import instance_rows
from bagwise.compute.aligned import frozen
from bagwise.compute.compiled import kernel, part
from bagwise.compute.devices import gpu_for
from bagwise.compute.memo import between_bags
from bagwise.compute.threads import in_threads

_CHUNK = 512  # instances at a time: two work arrays and a stripe of features stay in the first-level cache
_FAR = 40.0  # exp(-40) is below the rounding of a sum that holds a one
BLOCK = 1400  # instances on each side of a block where the kernel is not the compiled one: 16 MB
_WORTH_A_THREAD = 100_000  # kernel values, of some nanoseconds each


@part
def _add_exp(t, n, rate, total):
    """Add exp(-rate * t) to the totals.

    exp(-u) is taken as the 256th power of exp(-u / 256): eight terms of the series and eight squarings,
    without a table or a branch. The relative error is 256 roundings, about 3e-14.
    """
    for j in range(n):
        u = rate * t[j]
        u = min(max(u, 0.0), _FAR) * (-1.0 / 256.0)
        p = 1.0 + u * (1.0 / 8.0)
        p = 1.0 + u * (1.0 / 7.0) * p
        p = 1.0 + u * (1.0 / 6.0) * p
        p = 1.0 + u * (1.0 / 5.0) * p
        p = 1.0 + u * (1.0 / 4.0) * p
        p = 1.0 + u * (1.0 / 3.0) * p
        p = 1.0 + u * (1.0 / 2.0) * p
        p = 1.0 + u * p
        p *= p
        p *= p
        p *= p
        p *= p
        p *= p
        p *= p
        p *= p
        p *= p
        total[j] += p


@part
def _squared_distances(x, x2, YT, y2, start, n, t):
    """Squared distances of one instance to some columns, by |x|^2 + |y|^2 - 2 x'y.

    Stripes are cut before the loops: an index that might be negative costs the vector instructions.
    """
    stop = start + n
    lengths = y2[start:stop]
    for j in range(n):
        t[j] = x2 + lengths[j]
    d = YT.shape[0]
    k = 0
    while k + 3 < d:  # four features a pass: fewer visits to t
        a, b, c, e = -2.0 * x[k], -2.0 * x[k + 1], -2.0 * x[k + 2], -2.0 * x[k + 3]
        r0, r1 = YT[k, start:stop], YT[k + 1, start:stop]
        r2, r3 = YT[k + 2, start:stop], YT[k + 3, start:stop]
        for j in range(n):
            t[j] += (a * r0[j] + b * r1[j]) + (c * r2[j] + e * r3[j])
        k += 4
    while k < d:
        a, r0 = -2.0 * x[k], YT[k, start:stop]
        for j in range(n):
            t[j] += a * r0[j]
        k += 1


@part
def _one_row(bag, first, X, x2, offsets, YT, y2, column_offsets, rate, row):
    """Mean kernel of one bag with the column bags from ``first`` on."""
    n_columns = column_offsets.size - 1
    total, t = np.empty(_CHUNK), np.empty(_CHUNK)
    size = offsets[bag + 1] - offsets[bag]
    for c in range(first, n_columns):
        row[c] = 0.0
    b = first
    start = column_offsets[first]
    while start < column_offsets[n_columns]:
        n = min(_CHUNK, column_offsets[n_columns] - start)
        for j in range(n):
            total[j] = 0.0
        for i in range(offsets[bag], offsets[bag + 1]):
            _squared_distances(X[i], x2[i], YT, y2, start, n, t)
            _add_exp(t, n, rate, total)
        j = 0
        while j < n:  # hand the column sums to their bags
            while column_offsets[b + 1] <= start + j:
                b += 1
            stop = min(n, column_offsets[b + 1] - start)
            part = 0.0
            for i in range(j, stop):
                part += total[i]
            row[b] += part
            j = stop
        start += n
    for c in range(first, n_columns):
        row[c] /= size * (column_offsets[c + 1] - column_offsets[c])


@kernel
def gaussian_means(first, last, X, x2, offsets, YT, y2, column_offsets, rate, symmetric, out):
    """Mean kernel between bags of rows and bags of columns, into ``out``; turns ``first`` to ``last``.

    A turn is two bags, the one of that number and its counterpart from the end: a long row and a short one
    where half of the matrix is done, so that turns take equally long. There are as many turns as half the
    bags, rounded up.

    ``X`` (N, d) are instances of the row bags (``offsets``), ``x2`` their squared lengths; ``YT`` (d, M) and
    ``y2`` the same for the columns, transposed. No bag is empty. ``symmetric``: rows and columns are the same
    bags, and the part of ``out`` (n_bags, n_column_bags) below the diagonal is left undone.
    """
    n_rows = offsets.size - 1
    for turn in range(first, last):
        for side in range(2):
            bag = turn if side == 0 else n_rows - 1 - turn
            if side == 0 or bag != turn:
                start = bag if symmetric else np.int64(0)
                _one_row(bag, start, X, x2, offsets, YT, y2, column_offsets, rate, out[bag])


@kernel
def gaussian_pair_sums(first, last, X, x2, ends, YT, y2, rate, out):
    """Sum of the kernel of each instance with those behind it in its bag, into ``out``.

    ``X`` (N, d) are the instances, ``x2`` and ``y2`` their squared lengths, ``YT`` the instances transposed,
    ``ends`` (N,) the row after the last of each instance's bag.
    """
    total, t = np.empty(_CHUNK), np.empty(_CHUNK)
    for i in range(first, last):
        out[i] = 0.0
        start = i + 1
        while start < ends[i]:
            n = min(_CHUNK, ends[i] - start)
            for j in range(n):
                total[j] = 0.0
            _squared_distances(X[i], x2[i], YT, y2, start, n, t)
            _add_exp(t, n, rate, total)
            for j in range(n):
                out[i] += total[j]
            start += n


# ---------------------------------------------------------------------- any kernel, block by block


def take_bags(X: Any, offsets: np.ndarray, bags: np.ndarray) -> tuple[Any, np.ndarray]:
    """Instances of some bags, and their offsets."""
    rows, cut = instance_rows(offsets, bags)
    return X[rows], cut


def averages(offsets: np.ndarray) -> Any:
    """Matrix (n_bags, n_instances), in CSR, whose product with instances is the mean of each bag."""
    n_rows = int(offsets[-1] - offsets[0])
    share = np.repeat(1.0 / np.diff(offsets), np.diff(offsets))
    return sparse.csr_array(
        (share, np.arange(n_rows), offsets - offsets[0]), shape=(len(offsets) - 1, n_rows)
    )


def bag_means(X: Any, offsets: np.ndarray) -> Any:
    """Mean instance of each bag; of CSR instances in CSR."""
    if len(offsets) - 1 == X.shape[0]:
        return X if sparse.issparse(X) else np.asarray(X, dtype=np.float64)
    return averages(offsets) @ X


def dense(X: Any) -> np.ndarray:
    """The matrix as an array."""
    return X.toarray() if sparse.issparse(X) else X


class InstanceKernel:
    """k(x, x') + constant, and its means over pairs of bags.

    ``kernel`` is "gaussian", Eq. (2) with delta ``width``, "linear", Eq. (3), or a function of two matrices,
    such as scikit-learn's kernels; ``constant`` is the prior variance of an offset common to all instances.
    Gaussian kernels of dense instances are computed on ``device`` if they are many.
    """

    def __init__(self, kernel: Any, width: float, constant: float, device: str = "cpu") -> None:
        self.kernel, self.device = kernel, device
        self.rate = 1.0 / width**2
        self.constant = constant

    def between(self, X: Any, offsets: np.ndarray, Z: Any, z_offsets: np.ndarray) -> np.ndarray:
        """Mean kernel between the bags of ``X`` and those of ``Z``, shape (n_bags, n_z_bags)."""
        if self.kernel == "linear":
            return dense(bag_means(X, offsets) @ bag_means(Z, z_offsets).T) + self.constant
        if self.kernel == "gaussian" and not sparse.issparse(X) and not sparse.issparse(Z):
            return self._pairs((X, offsets), (Z, z_offsets)) + self.constant
        out = np.zeros((len(offsets) - 1, len(z_offsets) - 1))
        for rows, left, bags in _blocks(offsets):
            for columns, right, z_bags in _blocks(z_offsets):
                out[bags, z_bags] += left @ self._values(X[rows], Z[columns]) @ right.T
        return out + self.constant

    def with_itself(self, X: Any, offsets: np.ndarray) -> np.ndarray:
        """Mean kernel of each bag with itself: the diagonal of `between`."""
        n = len(offsets) - 1
        if self.kernel == "linear":
            return _squares(bag_means(X, offsets)) + self.constant
        if n == X.shape[0]:  # single instances: most kernels know their diagonal
            if self.kernel == "gaussian":
                return np.ones(n) + self.constant
            if hasattr(self.kernel, "diag"):
                return np.asarray(self.kernel.diag(dense(X)), dtype=np.float64) + self.constant
        if self.kernel == "gaussian" and not sparse.issparse(X):
            return self._gaussian_with_itself(X, offsets) + self.constant
        out = np.zeros(n)
        for rows, left, bags in _blocks(offsets):
            first, last = offsets[bags.start], offsets[bags.stop]  # the same bags, whole
            for columns, right, others in _blocks(offsets[bags.start : bags.stop + 1]):
                part = left @ self._values(X[rows], X[first:last][columns]) @ right.T
                own = np.arange(others.start, others.stop)
                out[bags][own] += part[own, np.arange(len(own))]
        return out + self.constant

    def gram(self, X: Any, offsets: np.ndarray) -> np.ndarray:
        """Mean kernel between all bags of ``X``."""
        if self.kernel == "gaussian" and not sparse.issparse(X):
            bags = X, offsets
            return self._pairs(bags, bags) + self.constant
        K = self.between(X, offsets, X, offsets)
        return (K + K.T) / 2.0

    def with_all(self, Z: Any, z_offsets: np.ndarray) -> Callable[[Any, np.ndarray], np.ndarray]:
        """`between` with fixed second bags, prepared once for many calls."""
        if self.kernel == "linear":
            means = bag_means(Z, z_offsets)
            return lambda X, offsets: dense(bag_means(X, offsets) @ means.T) + self.constant
        if self.kernel != "gaussian" or sparse.issparse(Z):
            return lambda X, offsets: self.between(X, offsets, Z, z_offsets)
        columns = self._columns(Z)
        return lambda X, offsets: self._gaussian(X, offsets, columns, z_offsets) + self.constant

    def _pairs(self, left, right):
        """Mean Gaussian kernel between bags, from known pairs of bags where they are kept."""
        gpu = gpu_for(self.device, float(len(left[0])) * len(right[0]))
        if gpu is not None:
            from bagwise.models._shared.gpu import kernel_sums

            def shares(of):
                return None if of is None else np.repeat(1.0 / np.diff(of), np.diff(of))

            (X, offsets), (Z, z_offsets) = left, (None, None) if left is right else right
            given = X, offsets, shares(offsets), Z, z_offsets, shares(z_offsets)
            return kernel_sums(*given, self.rate, gpu, single=False)

        def taken(bags: tuple[Any, np.ndarray], which: np.ndarray) -> tuple[Any, np.ndarray]:
            return bags if len(which) == len(bags[1]) - 1 else take_bags(*bags, which)

        def compute(some, others):
            if left is right and np.array_equal(some, others):
                return self._symmetric(*taken(left, some))
            Z, z_offsets = taken(right, others)
            return self._gaussian(*taken(left, some), self._columns(Z), z_offsets)

        X, offsets = left
        if len(offsets) - 1 == X.shape[0]:  # single instances: too many to keep
            return compute(np.arange(len(offsets) - 1), np.arange(len(right[1]) - 1))
        return between_bags(("mean kernel", self.rate), left, right, compute)

    def _symmetric(self, X, offsets):
        K = self._gaussian(X, offsets, self._columns(X), offsets, symmetric=True)
        for a in range(0, len(K), 256):  # mirror what is above the diagonal, block by block
            rows = slice(a, a + 256)
            K[rows, :a] = K[:a, rows].T
            K[rows, rows] = np.triu(K[rows, rows]) + np.triu(K[rows, rows], 1).T
        return K

    @staticmethod
    def _columns(Z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Instances transposed, squared lengths, and the centre they are measured from."""
        centre = Z.mean(axis=0, dtype=np.float64)  # |x|^2 + |z|^2 - 2 x'z is exact only near the origin
        ZT = np.ascontiguousarray((Z - centre).T, dtype=np.float64)
        return ZT, np.einsum("ji,ji->i", ZT, ZT), centre

    def _gaussian(self, X, offsets, columns, z_offsets, symmetric=False):
        YT, y2, centre = columns
        A = X - centre
        A, a2, YT, y2 = (frozen(a) for a in (A, np.einsum("ij,ij->i", A, A), YT, y2))
        cut, z_cut = frozen(offsets), frozen(z_offsets)
        out = np.empty((len(offsets) - 1, len(z_offsets) - 1))
        rate = float(self.rate)

        def turns(first, last):
            gaussian_means(first, last, A, a2, cut, YT, y2, z_cut, rate, symmetric, out)

        n_turns = len(out) - len(out) // 2
        sizes = np.diff(offsets) * (z_offsets[-1] - (z_offsets[:-1] if symmetric else 0))
        work = sizes[:n_turns] + sizes[::-1][:n_turns]
        in_threads(turns, n_turns, -1, work=np.append(0, np.cumsum(work)), smallest=_WORTH_A_THREAD)
        return out

    def _gaussian_with_itself(self, X, offsets):
        YT, y2, centre = self._columns(X)
        sizes = np.diff(offsets)
        A, YT, y2 = frozen(X - centre), frozen(YT), frozen(y2)
        ends = frozen(np.repeat(offsets[1:], sizes))
        sums, rate = np.empty(len(A)), float(self.rate)

        def rows(first, last):
            gaussian_pair_sums(first, last, A, y2, ends, YT, y2, rate, sums)

        work = np.append(0, np.cumsum(ends - np.arange(len(A))))
        in_threads(rows, len(A), -1, work=work, smallest=_WORTH_A_THREAD)
        return (2.0 * (averages(offsets) @ sums) + 1.0) / sizes

    def _values(self, A: Any, B: Any) -> np.ndarray:
        if self.kernel != "gaussian":
            return np.asarray(self.kernel(dense(A), dense(B)), dtype=np.float64)
        product = A @ B.T
        product = product.toarray() if sparse.issparse(product) else product
        squared = _squares(A)[:, None] + _squares(B)[None, :] - 2.0 * product
        return np.exp(-self.rate * np.maximum(squared, 0.0))


def _blocks(offsets: np.ndarray) -> Iterator[tuple[slice, Any, slice]]:
    """Runs of up to `BLOCK` instances, whatever the bags: rows, their shares in the bags' means, the bags."""
    n, first = len(offsets) - 1, offsets[0]
    whole = averages(offsets)
    for start in range(0, whole.shape[1], BLOCK):
        stop = min(start + BLOCK, whole.shape[1])
        a = int(np.searchsorted(offsets, first + start, side="right")) - 1
        b = min(n, int(np.searchsorted(offsets, first + stop, side="left")))
        yield slice(start, stop), whole[a:b, start:stop], slice(a, b)


def _squares(X: Any) -> np.ndarray:
    if sparse.issparse(X):
        return np.asarray((X.multiply(X)).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", X, X)
