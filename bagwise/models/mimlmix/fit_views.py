"""Views of MIMLmix: rows brought into the layout of the loops, label distributions and their M-steps.

A view class knows four things: likelihoods of its rows (``fill``), its sufficient statistics (``collect``,
additive over bags), the M-step (``update``) and the logarithm of the prior of its parameters (``log_prior``).
Learned parameters leave as plain dictionaries (``export``) that prediction reads.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from bagwise.bags import Bags
from bagwise.compute.aligned import frozen
from bagwise.compute.threads import small_products
from bagwise.models.mimlmix import kernels
from bagwise.models.mimlmix.kernels import spread

_MAX_PIECES = 16
_BLOCK = 4096  # rows that are copied at a time
_LONG = 1e8  # nanoseconds that are worth asking the matrix library to use one thread, which takes 5 ms


class ViewRows:
    """Where the rows of a view lie among the instances and pairs of all views."""

    tied = False  # whether all labels share their covariance at the moment

    def __init__(self, row_bag: np.ndarray, n_bags: int) -> None:
        self.row_bag = row_bag
        self.sizes = np.bincount(row_bag, minlength=n_bags)
        self.multiplicity = np.ones(len(row_bag))

    def place(self, lead: np.ndarray, inst_start: np.ndarray, pair_start: np.ndarray, n_labels: np.ndarray):
        """Number the rows; ``lead`` counts the bag's instances in earlier views."""
        starts = np.concatenate([[0], np.cumsum(self.sizes)])[:-1]
        rank = np.arange(len(self.row_bag)) - starts[self.row_bag] + lead[self.row_bag]
        self.n_labels = frozen(n_labels[self.row_bag])
        self.row_inst = frozen(inst_start[self.row_bag] + rank)
        self.row_pair = frozen(pair_start[self.row_bag] + rank * self.n_labels)
        self.n_pairs = int(self.n_labels.sum())

    def scale(self, P: np.ndarray, shift: np.ndarray) -> None:
        """Logarithms of the likelihoods of this view become likelihoods, each row up to a factor."""
        rows = (self.row_pair, self.n_labels, self.row_inst)
        spread(kernels.scale_rows, len(self.row_bag), *rows, P, shift, pairs=self.n_pairs)


class CountView(ViewRows):
    """A view of word counts: multinomials, eq. 7 with ``kappa`` pseudo-counts of a background.

    Counts need not be whole: eq. 7 and the E-step are the same for weights of words such as tf-idf.
    """

    kind = "counts"

    def __init__(self, bags: Bags, sets: Any, hyper: dict[str, Any]) -> None:
        X = bags.X if bags.is_sparse else sparse.csr_array(bags.X)
        self.bag_words = sum_rows(X, bags.offsets)
        self.tokens = is_token_view(X)
        if self.tokens:  # equal words of a bag share their phi: one row with a multiplicity
            super().__init__(np.repeat(np.arange(len(bags)), np.diff(self.bag_words.indptr)), len(bags))
            self.multiplicity = self.bag_words.data
            self.indptr = np.arange(self.bag_words.nnz + 1)
            self.indices, self.data = as_long(self.bag_words.indices), np.ones(self.bag_words.nnz)
        else:
            super().__init__(bags.index, len(bags))
            self.indptr, self.indices = as_long(X.indptr), as_long(X.indices)
            self.data = X.data.astype(np.float64)
            # ln(|x|! / prod x_i!) of every row; cancels in phi but neither in the bound nor in view weights
            rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
            lengths, factorials = (
                np.bincount(rows, v, minlength=X.shape[0]) for v in (self.data, gammaln(self.data + 1.0))
            )
            self.coefficient = gammaln(lengths + 1.0) - factorials
        self.hyper = hyper
        self.sets = sets
        self._own: Any = None  # statistics whose stored places are those of this view

    def connect(self, label_start: np.ndarray, labels: np.ndarray) -> None:
        """Find the (word, label) pairs that occur and where each pair of the data lies among them."""
        pattern = sparse.csr_array(self.bag_words.T @ self.sets)
        pattern.sort_indices()
        self.pattern = pattern
        places = np.diff(self.indptr) * self.n_labels
        row_place = np.concatenate([[0], np.cumsum(places)])[:-1]
        arrays = (self.indptr, self.data, self.multiplicity, self.n_labels, self.row_pair, row_place)
        self.rows = kernels.CountRows(*(frozen(a) for a in arrays))
        found = np.empty(places.sum(), dtype=np.int32 if pattern.nnz < 2**31 else np.int64)
        where = [
            frozen(a)
            for a in (self.indices, label_start[self.row_bag], labels, pattern.indptr, pattern.indices)
        ]
        spread(kernels.find_places, len(self.row_bag), self.rows, *where, found, pairs=len(found))
        self.places = frozen(found)
        # As many pieces as keep adding them up cheaper than filling them; set by the data, not by the
        # threads.
        self.n_pieces = int(np.clip(len(found) // max(pattern.nnz, 1), 2, _MAX_PIECES))
        self._prepare_prior()

    def _prepare_prior(self) -> None:
        words = np.repeat(np.arange(self.pattern.shape[0]), np.diff(self.pattern.indptr))
        self.prior = self.hyper["kappa"] * self.hyper["background"][words]

    def cover(self, stats: dict[str, Any]) -> None:
        """Hold all places of statistics that other bags gave; this view has no rows of its own."""
        self.pattern = self._own = stats["S"]
        self._prepare_prior()

    def parameters(self) -> dict[str, Any]:
        """What `restore` needs, as plain arrays."""
        return {"S": sparse_parts(self.S)}

    def collect(self, P: np.ndarray) -> dict[str, Any]:
        """Expected counts S_vyi of words and labels."""
        S = np.zeros((self.n_pieces, self.pattern.nnz))
        spread(kernels.add_counts, self.n_pieces, self.rows, self.places, P, S, pairs=len(self.places))
        shape = self.pattern.shape
        self._own = sparse.csr_array((S.sum(axis=0), self.pattern.indices, self.pattern.indptr), shape)
        return {"S": self._own}

    def update(self, stats: dict[str, Any]) -> None:
        """Eq. 7, smoothed. The statistics may come from more bags than the rows of this view."""
        self.S = stats["S"]
        self.totals = np.bincount(self.S.indices, self.S.data, minlength=self.S.shape[1])
        S = self.S.data if self.S is self._own else entries_at(self.S, self.pattern)
        kappa = self.hyper["kappa"]
        # what the prior's logarithm gains over that of a label without data: sum b_i ln(1 + S / (kappa b_i))
        self._gain = self.prior @ np.log1p(S / self.prior) / kappa
        table = (S + self.prior) / (self.totals + kappa)[self.pattern.indices]
        self.table = table if self.tokens else np.log(table, out=table)

    def restore(self, learned: dict[str, Any]) -> None:
        """Take up parameters that `export` gave."""
        self.update({"S": from_parts(learned["S"])})

    def fill(self, P: np.ndarray, shift: np.ndarray) -> None:
        """Likelihoods of all pairs, eq. 1."""
        table = (self.places, frozen(self.table), self.tokens)
        spread(kernels.fill_counts, len(self.row_bag), self.rows, *table, P, pairs=len(self.places))
        if not self.tokens:
            self.scale(P, shift)
            shift[self.row_inst] += self.coefficient

    def log_prior(self) -> float:
        """Return kappa sum_y sum_i b_i ln beta_yi, the Dirichlet prior whose mode eq. 7 with kappa is."""
        kappa, b = self.hyper["kappa"], self.hyper["background"]
        flat = self.S.shape[1] * (b @ np.log(kappa * b)) - b.sum() * np.log(self.totals + kappa).sum()
        return kappa * (flat + self._gain)

    def export(self) -> dict[str, Any]:
        """What prediction needs."""
        return {**self.hyper, **self.parameters(), "totals": self.totals}


# ---------------------------------------------------------------------- pieces


def as_long(indices: np.ndarray) -> np.ndarray:
    """Indices of the one type that kernels are compiled for."""
    return indices.astype(np.int64, copy=False)


def sparse_parts(S: Any) -> dict[str, Any]:
    """A CSR matrix as plain arrays, which every model file can hold."""
    return {"data": S.data, "indices": S.indices, "indptr": S.indptr, "shape": S.shape}


def from_parts(parts: dict[str, Any]) -> Any:
    """The matrix that `sparse_parts` took apart."""
    arrays = (parts["data"], parts["indices"], parts["indptr"])
    return sparse.csr_array(arrays, shape=tuple(parts["shape"]))


def is_token_view(X: Any) -> bool:
    """Whether every instance is a single word."""
    return bool(X.shape[0] and (np.diff(X.indptr) == 1).all() and (X.data == 1).all())


def sum_rows(X: Any, offsets: np.ndarray) -> Any:
    """Counts of each bag, by adding its rows; sparse."""
    bags = sparse.csr_array(
        (np.ones(X.shape[0]), np.arange(X.shape[0]), offsets), shape=(len(offsets) - 1, X.shape[0])
    )
    summed = sparse.csr_array(bags @ X)
    summed.sort_indices()
    return summed


def entries_at(S: Any, pattern: Any) -> np.ndarray:
    """Values of a sparse matrix at the stored places of another one, 0 where it has none."""
    S = S.tocsr()
    S.sort_indices()

    def keys(M: Any) -> np.ndarray:
        rows = np.repeat(np.arange(M.shape[0]), np.diff(M.indptr)).astype(np.int64)
        return rows * M.shape[1] + M.indices

    have, want = keys(S), keys(pattern)
    at = np.searchsorted(have, want).clip(max=max(len(have) - 1, 0))
    if not len(have):
        return np.zeros(len(want))
    return np.where(have[at] == want, S.data[at], 0.0)


# ---------------------------------------------------------------------- continuous views
# Each label is worked on by one thread whose matrix products stay on that thread (`small_products` around the
# loops): results do not depend on the number of threads.


class GaussianView(ViewRows):
    """A continuous view: Gaussians, eqs. 8-9 with ``nu`` pseudo-observations of covariance ``width`` * I.

    Rows are standardised with the location and scale of the training data first, so the prior covariance is
    ``width`` times the variance of each feature.
    """

    kind = "gaussian"

    def __init__(self, bags: Bags, sets: Any, hyper: dict[str, Any]) -> None:
        super().__init__(bags.index, len(bags))
        self.X = standardised(bags, hyper)
        self.hyper = hyper
        self.tied = hyper["covariance"] == "tied"
        self.diagonal = hyper["covariance"] == "diag"
        self.sets = sets

    def connect(self, label_start: np.ndarray, labels: np.ndarray) -> None:
        """Sort the pairs by label: each label's pairs are worked on together."""
        rows = np.repeat(np.arange(len(self.row_bag)), self.n_labels)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(self.n_labels) - self.n_labels, self.n_labels)
        which = labels[label_start[self.row_bag[rows]] + within]
        order = np.argsort(which, kind="stable")
        self.rows = rows[order]
        self.pairs = (self.row_pair[rows] + within)[order]
        self.by_label = np.searchsorted(which[order], np.arange(self.sets.shape[1] + 1))

    def _each_label(self, loop: Any, *arguments: Any) -> None:
        cost = 0.25 * self.X.shape[1] * (1 if self.diagonal else self.X.shape[1])
        n_labels = len(self.by_label) - 1
        spread(loop, n_labels, *arguments, pairs=len(self.pairs), cost=cost + 20.0, work=self.by_label)

    def _blocks(self, y: int) -> Any:
        """Rows and pairs of a label, some at a time."""
        for first in range(self.by_label[y], self.by_label[y + 1], _BLOCK):
            some = slice(first, min(first + _BLOCK, self.by_label[y + 1]))
            yield self.rows[some], self.pairs[some]

    def collect(self, P: np.ndarray) -> dict[str, Any]:
        """Expected numbers of instances and their first and second moments."""
        L, D = self.sets.shape[1], self.X.shape[1]
        mass, first, second = np.zeros(L), np.zeros((L, D)), np.zeros((L, 1 if self.diagonal else D, D))

        def add(a: int, b: int) -> None:  # X is centred, so moments about 0 do no harm
            for y in range(a, b):
                for rows, pairs in self._blocks(y):
                    X, phi = self.X[rows], P[pairs]
                    mass[y] += phi.sum()
                    weighted = X * phi[:, None]
                    first[y] += weighted.sum(axis=0)
                    second[y] += np.einsum("ij,ij->j", weighted, X) if self.diagonal else weighted.T @ X

        self._each_label(add)
        return {"mass": mass, "first": first, "second": second}

    def update(self, stats: dict[str, Any]) -> None:
        """Eqs. 8-9 with the prior; a label without instances here gets the distribution of the view."""
        nu, width = self.hyper["nu"], self.hyper["width"]
        mass, second = stats["mass"], stats["second"]
        seen = mass > 1e-10
        self.mean = np.where(seen[:, None], stats["first"] / np.where(seen, mass, 1.0)[:, None], 0.0)
        D = self.mean.shape[1]
        n = mass[:, None, None]
        if self.diagonal:
            scatter = np.maximum(second - n * self.mean[:, None, :] ** 2, 0.0)
            cov = (scatter + nu * width) / np.maximum(n + nu, 1e-300)
            cov[~seen] = self.hyper["total"]
            self.log_det = np.log(cov[:, 0]).sum(axis=1)
            self.trace = width * (1.0 / cov[:, 0]).sum(axis=1)
            self.whiten = 1.0 / np.sqrt(cov)
        else:
            scatter = second - n * self.mean[:, :, None] * self.mean[:, None, :]
            prior = nu * width * np.eye(D)
            if self.tied:  # one covariance, the mode of the same objective under that constraint
                cov = (scatter[seen].sum(axis=0) + max(seen.sum(), 1) * prior)[None]
                cov = cov / max(mass[seen].sum() + max(seen.sum(), 1) * nu, 1e-300)
            else:
                cov = (scatter + prior) / np.maximum(n + nu, 1e-300)
                cov[~seen] = self.hyper["total"]
            inverse, self.log_det = whitening(cov)
            self.trace = width * (inverse**2).sum(axis=(1, 2))
            self.whiten = np.ascontiguousarray(np.swapaxes(inverse, 1, 2))
        self.seen, self.moments = seen, stats
        constants = -0.5 * (D * np.log(2.0 * np.pi) + self.log_det)
        self.constants = np.broadcast_to(constants, (len(mass),)).copy()

    def cover(self, stats: dict[str, Any]) -> None:
        """Moments have the same places whatever the bags."""

    def parameters(self) -> dict[str, Any]:
        """What `restore` needs, as plain arrays."""
        return {"mean": self.mean, "whiten": self.whiten, "constants": self.constants}

    def restore(self, learned: dict[str, Any]) -> None:
        """Take up parameters that `export` gave."""
        self.mean, self.whiten, self.constants = learned["mean"], learned["whiten"], learned["constants"]

    def fill(self, P: np.ndarray, shift: np.ndarray) -> None:
        """Likelihoods of all pairs, eq. 2."""
        X, means, whiten = shared_whitening(self.X, self.mean, self.whiten)

        def densities(a: int, b: int) -> None:
            for y in range(a, b):
                for rows, pairs in self._blocks(y):
                    P[pairs] = log_density(X[rows], means[y], whiten[y % len(whiten)], self.constants[y])

        self._each_label(densities)
        self.scale(P, shift)

    def log_prior(self) -> float:
        """-nu/2 sum_y (ln|Sigma_y| + tr(Sigma_0 Sigma_y^-1)) over labels that have instances here."""
        values = np.broadcast_to(self.log_det + self.trace, (len(self.seen),))
        return -0.5 * self.hyper["nu"] * float(values[self.seen].sum())

    def export(self) -> dict[str, Any]:
        """What prediction needs."""
        return {**self.hyper, **self.parameters(), **self.moments}


def log_density(X: np.ndarray, mean: np.ndarray, whiten: Any, constant: float) -> np.ndarray:
    """Log densities of rows from the transposed inverse Cholesky factor.

    A factor of a single row is diagonal; None stands for the identity.

    Examples
    --------
    >>> log_density(np.array([[1.0, 2.0]]), np.zeros(2), np.array([[1.0, 0.0], [0.0, 0.5]]), -3.0)
    array([-4.])
    >>> log_density(np.array([[1.0, 2.0]]), np.zeros(2), np.array([[1.0, 0.5]]), -3.0)
    array([-4.])
    """
    Z = X - mean
    if whiten is not None:
        Z = Z @ whiten if len(whiten) == X.shape[1] else Z * whiten
    return constant - 0.5 * np.einsum("ij,ij->i", Z, Z)


def shared_whitening(X: np.ndarray, means: np.ndarray, whiten: np.ndarray) -> tuple[Any, Any, Any]:
    """Rows and means whitened at once where all labels share their covariance."""
    if len(whiten) > 1 or whiten.shape[1] != whiten.shape[2]:
        return X, means, whiten
    return X @ whiten[0], means @ whiten[0], [None]


def log_densities(X: np.ndarray, learned: dict[str, Any]) -> np.ndarray:
    """Log densities of standardised rows under all labels."""
    constants = learned["constants"]
    result = np.empty((len(X), len(constants)))
    cost = 0.25 * X.shape[1] * learned["whiten"].shape[1] + 5.0
    X, means, whiten = shared_whitening(X, learned["mean"], learned["whiten"])

    def fill(first: int, last: int) -> None:
        for a in range(first, last, _BLOCK):
            rows = slice(a, min(a + _BLOCK, last))
            for y in range(len(constants)):
                result[rows, y] = log_density(X[rows], means[y], whiten[y % len(whiten)], constants[y])

    with small_products(0.0) if result.size * cost > _LONG else nullcontext():
        spread(fill, len(X), pairs=result.size, cost=cost)
    return result


def whitening(cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inverse Cholesky factors and log-determinants; a matrix that is not positive definite gets a ridge."""
    try:
        factor = np.linalg.cholesky(cov)
    except np.linalg.LinAlgError:
        ridge = 1e-8 * np.maximum(np.trace(cov, axis1=1, axis2=2) / cov.shape[1], 1e-8)
        while True:
            try:
                factor = np.linalg.cholesky(cov + ridge[:, None, None] * np.eye(cov.shape[1]))
                break
            except np.linalg.LinAlgError:
                ridge = ridge * 10.0
    log_det = 2.0 * np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
    return np.linalg.inv(factor), log_det


def standardised(bags: Bags, hyper: dict[str, Any]) -> np.ndarray:
    """Rows as contiguous float64 with the training location and scale taken out; no constant features."""
    kept = hyper["scale"] > 0
    X = bags.X if kept.all() else bags.X[:, np.flatnonzero(kept)]
    X = X.toarray() if bags.is_sparse else X
    return np.ascontiguousarray((X.astype(np.float64) - hyper["location"][kept]) / hyper["scale"][kept])
