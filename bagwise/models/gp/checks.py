"""Settings of MIML-GP that cannot work, refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from bagwise.errors import DataError
from bagwise.models.gp.transforms import TRANSFORMS

STRUCTURES = ("full", "diagonal", "scalar", "identity")
_CHOICES = {
    "assumption": ("collective", "standard"),
    "factor": ("auto", "eigen", "pivoted", "nystroem"),
    "cross": ("auto", "exact", "features"),
    "selection": ("auto", "evidence", "cv"),
    "mode": ("fast", "paper"),
}


def check_settings(model: Any, n_labels: int) -> None:
    """Raise an error that names the parameter, what it may be and what it was."""
    for name, allowed in _CHOICES.items():
        if getattr(model, name) not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {getattr(model, name)!r}")
    scalings = [model.scaling] if isinstance(model.scaling, str) else list(model.scaling)
    if not scalings or any(name not in TRANSFORMS for name in scalings):
        raise ValueError(f"scaling must be among {', '.join(TRANSFORMS)}; got {model.scaling!r}")
    if isinstance(model.kernel, str) and model.kernel not in ("gaussian", "linear"):
        raise ValueError(f"kernel must be 'gaussian', 'linear' or a function; got {model.kernel!r}")
    if isinstance(model.width, str):
        if model.width != "auto":
            raise ValueError(f"width must be a number, several, or 'auto'; got {model.width!r}")
    elif np.size(model.width) == 0 or not (np.atleast_1d(model.width) > 0).all():
        raise ValueError(f"width must be positive; got {model.width!r}")
    if not 0 < model.share <= 1:
        raise ValueError(f"share must be above 0 and at most 1; got {model.share}")
    if model.rank is not None and model.rank < 1:
        raise ValueError(f"rank must be at least 1; got {model.rank}")
    if model.max_iter < 1:
        raise ValueError(f"max_iter must be at least 1; got {model.max_iter}")
    if len(model.sharpness) == 0 or min(model.sharpness) <= 0:
        raise ValueError(f"sharpness must hold positive numbers; got {model.sharpness!r}")
    _check_covariance(model.label_covariance, n_labels)


def _check_covariance(given: Any, n_labels: int) -> None:
    if isinstance(given, str):
        if given not in STRUCTURES:
            raise ValueError(
                f"label_covariance must be one of {', '.join(STRUCTURES)} or a matrix; got {given!r}"
            )
        return
    K = np.asarray(given, dtype=np.float64)
    right = K.shape == (n_labels, n_labels) and np.allclose(K, K.T)
    if not right or linalg.eigvalsh(K)[0] < -1e-9 * np.abs(K).max():
        raise DataError(
            f"label_covariance must be a symmetric positive semi-definite matrix of shape "
            f"({n_labels}, {n_labels}), one row per label; got shape {K.shape}"
        )
