"""What can be done to instances first: bends of their values, here, and scalings, in `_shared.scaling`.

Nothing shifts features: shifts drop out of a Gaussian kernel and would fill sparse matrices.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags import Bags
from bagwise.compute.parts import Held, Parts
from bagwise.compute.scaling import Scaling, apply_scaling, scaling_of
from bagwise.errors import DataError, quoted

TRANSFORMS = ("none", "minmax", "standard", "l2", "sqrt", "log", "sqrt-l2", "log-l2")
_HUGE = 1e100  # squared distances of larger values leave the range of numbers


def learn_transform(X: Any, transform: str) -> Scaling:
    """Learn from training instances what the transform of this name does to any instance."""
    return transform_of(Held((X, None)), transform, X.shape[1], X.dtype)


def transform_of(parts: Parts, transform: str, n_features: int, dtype: Any) -> Scaling:
    """The same from instances in parts, as `scaling_of` takes them."""
    kind = {"sqrt-l2": "l2", "log-l2": "l2", "sqrt": "none", "log": "none"}.get(transform, transform)
    found = scaling_of(parts, kind, n_features, dtype)
    return replace(found, shift=np.zeros(n_features))


def apply_transform(X: Any, transform: str, scaling: Scaling) -> Any:
    """Transformed copy in double precision; CSR stays CSR."""
    if transform.startswith(("sqrt", "log")):
        X = sparse.csr_array(X, dtype=np.float64, copy=True) if sparse.issparse(X) else X.astype(np.float64)
        values = X.data if sparse.issparse(X) else X
        bent = np.sqrt(np.abs(values)) if transform.startswith("sqrt") else np.log1p(np.abs(values))
        values[...] = np.copysign(bent, values)
    return apply_scaling(X, scaling)


def transformed(bags: Bags, transform: str, scaling: Scaling) -> Any:
    """Instances after the transform, all of them small enough to be squared."""
    X = apply_transform(bags.X, transform, scaling)
    refuse_huge(X, bags)
    return X


def is_huge(X: Any) -> bool:
    """Whether a value is too large to be squared."""
    values = X.data if sparse.issparse(X) else X
    return values.size > 0 and max(float(values.max()), -float(values.min())) > _HUGE


def refuse_huge(X: Any, bags: Bags) -> None:
    """Raise an error that names the bag and the feature if a transformed value is too large to be squared."""
    if not is_huge(X):
        return
    values = np.abs(X.data if sparse.issparse(X) else X)
    if sparse.issparse(X):
        at = int(values.argmax())
        row, column = int(np.searchsorted(X.indptr, at, side="right")) - 1, int(X.indices[at])
    else:
        row, column = (int(i) for i in np.unravel_index(values.argmax(), values.shape))
    bag = quoted(bags.bag_ids[bags.index[row]])
    raise DataError(
        f"feature {column} of bag {bag} has the value {bags.X[row, column]:.3g}, beyond what squared "
        f"distances can hold after scaling ({_HUGE:.0e}); correct it, or divide the feature"
    )
