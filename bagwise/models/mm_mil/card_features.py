"""Features of MM-MIL on a card, in double precision: kept there, or made in every pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from bagwise.compute.scaling import Scaling
from bagwise.compute.torch_move import as_tensor, moved, streamed
from bagwise.models.mm_mil.features import Kernel

__all__ = ["CardFeatures", "FeaturesOf"]

Tensor = torch.Tensor
_SHARE_OF_CARD = 0.5  # of its free memory that features may take
_STREAMED = 1 << 28  # bytes of instances at a time where features are made anew in every pass


class FeaturesOf:
    """What makes features, on a device, of instances as given: scaled ones, or those of a kernel."""

    def __init__(self, device: Any, scaling: Scaling | None, kernel: Kernel | None = None) -> None:
        self.device = device
        self.scaling = None if scaling is None else (self._there(scaling.shift), self._there(scaling.factor))
        self.kernel: tuple[Tensor, Tensor, float] | None = None
        if kernel is not None:
            landmarks = self._there(kernel.landmarks)
            self.kernel = landmarks, landmarks.square().sum(dim=1), kernel.sigma2
            # weights of a fitted model are those of the kernel itself
            self.whitening = None if kernel.whitening is None else self._there(kernel.whitening)

    def _there(self, values: Any) -> Tensor:
        return as_tensor(np.asarray(values, dtype=np.float64)).to(self.device)

    def __call__(self, rows: Tensor) -> Tensor:
        """Features of instances, in double precision."""
        Z = rows.double()
        if self.scaling is not None:
            Z = (Z - self.scaling[0]) * self.scaling[1]
        if self.kernel is None:
            return Z
        landmarks, lengths, sigma2 = self.kernel
        D = torch.addmm(lengths, Z, landmarks.T, alpha=-2.0).add_(Z.square().sum(dim=1, keepdim=True))
        K = D.clamp_min_(0.0).mul_(-0.5 / sigma2).exp_()
        return K if self.whitening is None else K @ self.whitening


class CardFeatures:
    """Features of all instances: on the device, or, where they do not fit, made in every pass, run by run.

    Parameters
    ----------
    X : ndarray of shape (n_instances, n_inputs)
        Dense instances.
    features_of : FeaturesOf
        What is made of them.
    n_features : int
        How many features that gives.
    resident : bool, optional
        Whether features are kept on the device; by default if they fit.
    """

    def __init__(
        self, X: np.ndarray, features_of: FeaturesOf, n_features: int, resident: bool | None = None
    ) -> None:
        self.host, self.of, self.device = X, features_of, features_of.device
        self.shape = (len(X), n_features)
        self.kept: Tensor | None = None
        if self._fits() if resident is None else resident:
            self._keep()

    def _fits(self) -> bool:
        if self.device.type != "cuda":
            return True
        return 8.0 * self.shape[0] * self.shape[1] < _SHARE_OF_CARD * torch.cuda.mem_get_info(self.device)[0]

    def _keep(self) -> None:
        with suppress(torch.cuda.OutOfMemoryError):
            self.kept = moved(
                self.host,
                torch.empty(self.shape, dtype=torch.float64, device=self.device),
                change=self.of,
            )
        if self.kept is None:  # they are made in every pass instead
            torch.cuda.empty_cache()

    @property
    def most_rows(self) -> int:
        """Instances that may be asked for at a time."""
        if self.kept is not None:
            return max(self.shape[0], 1)
        return max(1, _STREAMED // max(self.host.itemsize * self.host.shape[1], 8 * self.shape[1]))

    def runs(self, bounds: list[tuple[int, int]]) -> Iterator[Tensor]:
        """Features of the instances from first to last of each pair."""
        if self.kept is not None:
            for first, last in bounds:
                yield self.kept[first:last]
        else:
            for rows in streamed(self.host, bounds, self.device):
                yield self.of(rows)

    def some(self, rows: np.ndarray) -> Tensor:
        """Features of instances by number."""
        if self.kept is not None:
            return self.kept[as_tensor(rows).to(self.device)]
        return self.of(as_tensor(self.host[rows]).to(self.device))
