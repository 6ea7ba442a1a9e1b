"""Continuous views of MIMLmix: a Gaussian per label, by matrix products label by label.

Each label is worked on by one thread whose matrix products stay on that thread (`parallel.small_products`
around the loops): results do not depend on the number of threads.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.compute.threads import small_products
from bagwise.models.mimlmix.loops import spread
from bagwise.models.mimlmix.views import ViewRows

_BLOCK = 4096  # rows that are copied at a time
_LONG = 1e8  # nanoseconds that are worth asking the matrix library to use one thread, which takes 5 ms


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
        learned = {"mean": self.mean, "whiten": self.whiten, "constants": self.constants}
        return {**self.hyper, **learned, **self.moments}


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
