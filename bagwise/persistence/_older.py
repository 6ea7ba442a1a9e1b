"""Models of files that older versions or other machines wrote, brought to what works here today."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from bagwise.base._input import BagInput
from bagwise.compute.devices import gpu_there
from bagwise.compute.scaling import Scaling

# These kept a factor, or mean and spread, where they keep a `Scaling` now.
_SCALED = {
    "CodebookSVM",
    "MILES",
    "MIMLKNN",
    "MIMLNN",
    "MIMLRBF",
    "MIMLSVM",
    "MISVM",
    "SetKernelSVM",
}


def update(part: Any) -> None:
    """Give an estimator of an older version the attributes of today, and one of a card a device."""
    _fill_parameters(part)
    if isinstance(part, BagInput) and str(vars(part).get("device")).startswith("cuda"):
        if not gpu_there(part.device):  # made on a card, and loaded where there is none
            part.device = "auto"
    if type(part).__name__ not in _SCALED or "_scale" not in vars(part) or hasattr(part, "_scaling"):
        return
    kept, d = vars(part).pop("_scale"), part.n_features_in_
    shift, factor = np.zeros(d), np.ones(d)
    if isinstance(kept, tuple):
        shift, spread = (np.asarray(values, dtype=np.float64) for values in kept)
        factor = np.divide(1.0, spread, out=np.zeros(d), where=spread > 0)
    elif kept is not None:
        factor = np.asarray(kept, dtype=np.float64)
    part._scaling = Scaling(part.scaling, shift, factor)


def _fill_parameters(part: Any) -> None:
    """Give parameters that came later the value by which a model behaves as before: their default."""
    if not isinstance(part, BagInput):
        return
    for name, parameter in inspect.signature(type(part)).parameters.items():
        if parameter.default is not parameter.empty and name not in vars(part):
            setattr(part, name, parameter.default)
