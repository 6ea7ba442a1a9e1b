"""What each parameter of MIML-GP may be."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from bagwise.base.parameters import Anything, Choice, Device, HasMethod, Number, Rules, Seed, Several, Whole
from bagwise.errors import DataError
from bagwise.models.gp.transforms import TRANSFORMS

STRUCTURES = ("full", "diagonal", "scalar", "identity")

PARAMETERS: Rules = {
    "kernel": (Choice("gaussian", "linear"), HasMethod("__call__")),
    "width": (Choice("auto"), Number(above=0), Several(Number(above=0))),
    "assumption": Choice("collective", "standard"),
    "label_covariance": Anything(f"one of {', '.join(STRUCTURES)}, or a matrix"),
    "scaling": (Choice("auto", *TRANSFORMS), Several(Choice("auto", *TRANSFORMS))),
    "constant": (Choice(None), Number(0)),
    "scale": (Choice(None), Number(above=0)),
    "factor": Choice("auto", "eigen", "pivoted", "nystroem"),
    "share": Number(above=0, high=1),
    "rank": (Choice(None), Whole(1)),
    "cross": Choice("auto", "exact", "features"),
    "selection": Choice("auto", "evidence", "cv"),
    "cv": Whole(2),
    "sharpness": Several(Number(above=0)),
    "n_draws": Whole(1, 2**20),
    "n_probes": Whole(0),
    "exact_limit": Whole(0),
    "max_iter": Whole(1),
    "tol": Number(0),
    "mode": Choice("fast", "paper"),
    "device": Device(),
    "random_state": Seed(),
}


def check_sums(model: Any) -> None:
    """Refuse, on shards of several parts, settings that look at all pairs of bags."""
    others = {
        "assumption": ("standard", "features of all instances", "'collective'"),
        "mode": ("paper", "the kernel between all pairs of bags", "'fast'"),
        "cross": ("exact", "the kernel with all training bags", "'auto'"),
        "factor": ("eigen", "the kernel between all pairs of bags", "'auto', 'pivoted' or 'nystroem'"),
    }
    for name, (refused, why, instead) in others.items():
        linear = model.kernel == "linear" and name in ("cross", "factor")
        if getattr(model, name) == refused and not linear:
            raise ValueError(f"{name}={refused!r} needs {why} at once; on shards use {name}={instead}")


def check_covariance(given: Any, n_labels: int) -> None:
    """Refuse what is neither a structure nor a covariance matrix of the labels."""
    if isinstance(given, str):
        if given not in STRUCTURES:
            raise ValueError(
                f"label_covariance must be one of {', '.join(STRUCTURES)} or a matrix, got {given!r}"
            )
        return
    try:
        K = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        K = np.empty(0)
    right = K.shape == (n_labels, n_labels) and np.isfinite(K).all() and np.allclose(K, K.T)
    if not right or linalg.eigvalsh(K)[0] < -1e-9 * np.abs(K).max():
        raise DataError(
            f"label_covariance must be a symmetric positive semi-definite matrix of shape "
            f"({n_labels}, {n_labels}) without NaN, one row per label; got {_described(given)}"
        )


def _described(given: Any) -> str:
    shape = np.shape(given) if isinstance(given, (np.ndarray, list, tuple)) else ()
    return f"shape {shape}" if shape else repr(given)
