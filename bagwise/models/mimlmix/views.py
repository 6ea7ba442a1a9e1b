"""Views of MIMLmix: rows brought into the layout of the kernels, label distributions and their M-steps.

A view class knows four things: likelihoods of its rows (``fill``), its sufficient statistics (``collect``,
additive over bags), the M-step (``update``) and the logarithm of the prior of its parameters (``log_prior``).
Learned parameters leave as plain dictionaries (``export``) that prediction reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from bagwise.bags import Bags
from bagwise.models.mimlmix import kernels

_MAX_PIECES = 16


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
        self.row_inst = inst_start[self.row_bag] + rank
        self.row_pair = pair_start[self.row_bag] + rank * n_labels[self.row_bag]


class CountView(ViewRows):
    """A view of word counts: multinomials, eq. 7 with ``kappa`` pseudo-counts of a background."""

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
            self.coefficient = np.zeros(self.bag_words.nnz)
        else:
            super().__init__(bags.index, len(bags))
            self.indptr, self.indices = as_long(X.indptr), as_long(X.indices)
            self.data = X.data.astype(np.float64)
            self.coefficient = multinomial_coefficient(X)
        self.hyper = hyper
        self.sets = sets
        self._own: Any = None  # statistics whose stored places are those of this view

    def connect(self, label_start: np.ndarray, labels: np.ndarray) -> None:
        """Find the (word, label) pairs that occur and where each pair of the data lies among them."""
        pattern = sparse.csr_array(self.bag_words.T @ self.sets)
        pattern.sort_indices()
        self.pattern = pattern
        n_labels = np.diff(label_start)
        places = np.diff(self.indptr) * n_labels[self.row_bag]
        self.row_place = np.concatenate([[0], np.cumsum(places)])[:-1]
        self.place_of = np.empty(places.sum(), dtype=np.int32 if pattern.nnz < 2**31 else np.int64)
        kernels.find_places(
            self.indptr,
            self.indices,
            self.row_bag,
            self.row_place,
            label_start,
            labels,
            pattern.indptr,
            pattern.indices,
            self.place_of,
        )
        self.label_start = label_start
        # As many pieces as keep adding them up cheaper than filling them; set by the data, not by the
        # threads.
        self.n_pieces = int(np.clip(self.place_of.size // max(pattern.nnz, 1), 2, _MAX_PIECES))
        words = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
        self.prior = self.hyper["kappa"] * self.hyper["background"][words]
        self.table = np.empty(pattern.nnz)

    def collect(self, P: np.ndarray) -> dict[str, Any]:
        """Expected counts S_vyi of words and labels."""
        S = np.zeros((self.n_pieces, self.pattern.nnz))
        kernels.add_counts(
            self.indptr,
            self.data,
            self.multiplicity,
            self.row_bag,
            self.row_pair,
            self.row_place,
            self.label_start,
            self.place_of,
            P,
            S,
        )
        shape = self.pattern.shape
        self._own = sparse.csr_array((S.sum(axis=0), self.pattern.indices, self.pattern.indptr), shape)
        return {"S": self._own}

    def update(self, stats: dict[str, Any]) -> None:
        """Eq. 7, smoothed. The statistics may come from more bags than the rows of this view."""
        self.S = stats["S"]
        self.totals = np.bincount(self.S.indices, self.S.data, minlength=self.S.shape[1])
        S = self.S.data if self.S is self._own else entries_at(self.S, self.pattern)
        gain = np.empty(_MAX_PIECES)
        kernels.count_tables(
            S,
            self.prior,
            self.pattern.indices,
            self.totals,
            self.hyper["kappa"],
            not self.tokens,
            self.table,
            gain,
        )
        self._gain = gain.sum()

    def restore(self, learned: dict[str, Any]) -> None:
        """Take up parameters that `export` gave."""
        self.update({"S": from_parts(learned["S"])})

    def fill(self, P: np.ndarray, shift: np.ndarray) -> None:
        """Likelihoods of all pairs, eq. 1."""
        where = (self.row_bag, self.row_pair)
        if self.tokens:
            kernels.fill_tokens(*where, self.row_place, self.label_start, self.place_of, self.table, P)
        else:
            kernels.fill_counts(
                self.indptr,
                self.data,
                *where,
                self.row_inst,
                self.row_place,
                self.label_start,
                self.place_of,
                self.table,
                self.coefficient,
                P,
                shift,
            )

    def log_prior(self) -> float:
        """Return kappa sum_y sum_i b_i ln beta_yi, the Dirichlet prior whose mode eq. 7 with kappa is."""
        kappa, b = self.hyper["kappa"], self.hyper["background"]
        flat = self.S.shape[1] * (b @ np.log(kappa * b)) - b.sum() * np.log(self.totals + kappa).sum()
        return kappa * (flat + self._gain)

    def export(self) -> dict[str, Any]:
        """What prediction needs."""
        return {**self.hyper, "S": sparse_parts(self.S), "totals": self.totals}


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
        n_labels = np.diff(label_start)[self.row_bag]
        rows = np.repeat(np.arange(len(self.row_bag)), n_labels)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(n_labels) - n_labels, n_labels)
        which = labels[label_start[self.row_bag[rows]] + within]
        order = np.argsort(which, kind="stable")
        self.rows = rows[order]
        self.pairs = (self.row_pair[rows] + within)[order]
        self.by_label = np.searchsorted(which[order], np.arange(self.sets.shape[1] + 1))
        self.label_start = label_start

    def collect(self, P: np.ndarray) -> dict[str, Any]:
        """Expected numbers of instances and their first and second moments."""
        L, D = self.sets.shape[1], self.X.shape[1]
        mass, first, second = np.zeros(L), np.zeros((L, D)), np.zeros((L, 1 if self.diagonal else D, D))
        kernels.add_moments(
            self.X, self.by_label, self.rows, self.pairs, P, self.diagonal, mass, first, second
        )
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
            cov[~seen] = np.diag(self.hyper["total"])
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

    def restore(self, learned: dict[str, Any]) -> None:
        """Take up parameters that `export` gave."""
        self.mean, self.whiten, self.constants = learned["mean"], learned["whiten"], learned["constants"]

    def fill(self, P: np.ndarray, shift: np.ndarray) -> None:
        """Likelihoods of all pairs, eq. 2."""
        kernels.fill_gaussian(
            self.X,
            self.by_label,
            self.rows,
            self.pairs,
            self.mean,
            self.whiten,
            self.constants,
            self.diagonal,
            P,
        )
        kernels.scale_rows(self.row_bag, self.row_pair, self.row_inst, self.label_start, P, shift)

    def log_prior(self) -> float:
        """-nu/2 sum_y (ln|Sigma_y| + tr(Sigma_0 Sigma_y^-1)) over labels that have instances here."""
        values = np.broadcast_to(self.log_det + self.trace, (len(self.seen),))
        return -0.5 * self.hyper["nu"] * float(values[self.seen].sum())

    def export(self) -> dict[str, Any]:
        """What prediction needs."""
        learned = {"mean": self.mean, "whiten": self.whiten, "constants": self.constants}
        return {**self.hyper, **learned, **self.moments}


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


def multinomial_coefficient(X: Any) -> np.ndarray:
    """ln(|x|! / prod x_i!) of every row; cancels in phi but neither in the bound nor in the view weights."""
    data = X.data.astype(np.float64)
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    lengths = np.bincount(rows, data, minlength=X.shape[0])
    return gammaln(lengths + 1.0) - np.bincount(rows, gammaln(data + 1.0), minlength=X.shape[0])


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
    """Rows as contiguous float64, with the training location and scale taken out."""
    X = bags.X.toarray() if bags.is_sparse else bags.X
    return np.ascontiguousarray((X.astype(np.float64) - hyper["location"]) / hyper["scale"])
