"""Similarities to a sample of training rows: a kernel made into features."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from bagwise.base.parameters import Number, Rules, Seed, Whole, check_parameters


class RBFDictionary(TransformerMixin, BaseEstimator):
    """Describe a row by its similarities ``exp(-|x - x_j|^2 / width_)`` to rows of the training data.

    Parameters
    ----------
    size : int or float, default=1.0
        Number of training rows in the dictionary, or their share if a float. 1.0 takes all.
    scale : float, default=1.0
        The width is this times the mean squared distance between two training rows.
    random_state : int, RandomState instance or None, default=None
        Seed of the sample.

    Attributes
    ----------
    rows_ : ndarray or CSR of shape (n_dictionary, n_features)
        The dictionary.
    width_ : float
        The width of the kernel.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [3.0]])
    >>> RBFDictionary().fit(X).width_  # pairs of rows differ by 1, 2 and 3
    4.66...
    >>> RBFDictionary(size=2, random_state=0).fit_transform(X).shape
    (3, 2)
    """

    _parameters: ClassVar[Rules] = {
        "size": (Whole(1), Number(above=0, high=1)),
        "scale": Number(above=0),
        "random_state": Seed(),
    }

    def __init__(self, size: float = 1.0, *, scale: float = 1.0, random_state: Any = None) -> None:
        self.size = size
        self.scale = scale
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> RBFDictionary:
        """Measure the spread of the rows and sample the dictionary."""
        check_parameters(self, self._parameters)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=2)
        n = X.shape[0]
        size = self.size if isinstance(self.size, Integral) else round(self.size * n)
        size = max(size, 1)
        # mean of |x - x'|^2 over pairs of different rows = 2 (mean |x|^2 - |mean x|^2) n / (n - 1)
        squares = X.multiply(X).sum() if hasattr(X, "multiply") else np.vdot(X, X)
        spread = float(squares) / n - float(np.square(np.asarray(X.mean(axis=0), dtype=np.float64)).sum())
        self.width_ = self.scale * 2.0 * max(spread, np.finfo(np.float64).tiny) * n / (n - 1)
        chosen = np.arange(n)
        if size < n:
            chosen = np.sort(check_random_state(self.random_state).choice(n, size, replace=False))
        self.rows_ = X[chosen]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Similarities of every row to every row of the dictionary."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32])
        distances = euclidean_distances(X, self.rows_, squared=True)
        distances /= -self.width_
        return np.exp(distances, out=distances)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
