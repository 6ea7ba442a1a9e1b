"""Instances of MIMLfast on a card, and scores of bags by tensors: in training, and of a fitted model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from bagwise.compute.scaling import Scaling
from bagwise.compute.torch_move import as_tensor, fetched, fitting, streamed
from bagwise.compute.torch_ops import Segments, _reduce
from bagwise.models._shared.gpu import Instances
from bagwise.models.mimlfast.scale import Scale

__all__ = ["CardForward", "scaled_instances", "scores_on_card"]

_CELLS = 1 << 26  # scores of instances made at a time


def scaled_instances(X: np.ndarray, scaling: str, norm: float, device: Any) -> tuple[Instances, Scale] | None:
    """Dense instances on a device, and the scale of `learn_scale` they have there; None for text."""
    d = X.shape[1]
    width = -(-(d + 1) // 8) * 8  # rows begin at multiples of 32 bytes
    if scaling == "none":
        store = Instances(X, device, Scaling("none", np.zeros(d), np.ones(d)), width=width)
    else:
        store = Instances(X, device, width=width)
        if store.is_text:
            return None
        squares = np.count_nonzero(store.base.factor)
        store.stretch(norm / np.sqrt(squares) if squares > 0 else 0.0)
    constant = 0.0 if scaling == "none" else 1.0
    if store.kept is not None:
        store.kept[:, d] = constant
    mean, factor = (values.astype(X.dtype) for values in (store.base.shift, store.base.factor))
    return store, Scale(mean, factor, constant, False)


class CardForward:
    """Scaled instances on the device, and scores of bags by number; takes the place of `forward.Forward`."""

    def __init__(
        self, store: Instances, offsets: np.ndarray, scale: Scale, shape: tuple[int, int, int]
    ) -> None:
        self.store, self.shape, self.device = store, shape, store.device
        self.offsets = np.asarray(offsets, dtype=np.int64)
        self.n_inputs, self.width, self.constant = store.shape[1] + 1, store.width, float(scale.constant)
        self._step = 1 << 62  # bags at a time that have fitted the GPU

    def bounds(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row numbers of the instances of some bags, and where the bags begin among them."""
        sizes = self.offsets[ids + 1] - self.offsets[ids]
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        return np.arange(bounds[-1]) + np.repeat(self.offsets[ids] - bounds[:-1], sizes), bounds

    def inputs(self, rows: np.ndarray) -> torch.Tensor:
        """Scaled instances with the constant and columns of zeros."""
        if self.store.kept is not None:
            return self.store.kept.index_select(0, as_tensor(rows).to(self.device))
        X = torch.zeros((len(rows), self.width), device=self.device)
        X[:, : self.n_inputs - 1] = self.store.some(rows)
        X[:, self.n_inputs - 1] = self.constant
        return X

    def padded(self, space: torch.Tensor) -> torch.Tensor:
        """The map into the shared space with rows of zeros for columns of zeros."""
        wide = torch.zeros((self.width, space.shape[1]), device=self.device)
        wide[: len(space)] = space
        return wide

    def scores(self, ids: np.ndarray, space: torch.Tensor, vectors: torch.Tensor) -> np.ndarray:
        """Scores of all labels and the dummy for some bags; ``space`` is padded."""
        K, n_all, m = vectors.shape
        mean_size = max(self.store.shape[0] / (len(self.offsets) - 1), 1.0)
        usual = max(1, int(_CELLS / (K * n_all * mean_size)))

        def whole(step: int) -> np.ndarray:
            out = []
            for start in range(0, len(ids), step):
                rows, bounds = self.bounds(ids[start : start + step])
                S = (self.inputs(rows) @ space) @ vectors.reshape(-1, m).T
                top = _reduce(S, Segments.of(bounds, self.device), "max")
                out.append(top.view(-1, K, n_all).amax(dim=1))
            return torch.cat(out).cpu().numpy()

        start = min(usual, self._step, max(len(ids), 1))
        found, step = fitting(whole, start, "one bag")
        self._step = step if step < start else self._step
        return found


def scores_on_card(
    model: Any, bags: Any, bounds: list[tuple[int, int]], card: Any, *, of_bags: bool
) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
    """Runs of bags, with the best score over sub-concepts of every label and the dummy.

    Scores are of the bags or of their instances; runs that do not fit the GPU come in halves.
    """
    n_all, K, m = model.label_weights_.shape
    given = model.shared_space_.T, model.shared_intercept_, model.label_weights_.reshape(-1, m).T
    A, c, V = (as_tensor(np.asarray(values, dtype=np.float64)).to(card) for values in given)
    V, offsets = V.float(), np.asarray(bags.offsets)

    def scores(X: torch.Tensor, first: int, last: int) -> np.ndarray:
        # features as given may be far from 0: the shared space is found in double precision
        S = torch.addmm(c, X.double(), A).float() @ V
        best = S.view(len(X), n_all, K).amax(dim=2)
        if of_bags:
            best = _reduce(best, Segments.of(offsets[first : last + 1] - offsets[first], card), "max")
        return fetched(best).astype(np.float64)

    todo = list(bounds)
    while todo:
        rows = [(int(offsets[first]), int(offsets[last])) for first, last in todo]
        pending, done = zip(list(todo), streamed(bags.X, rows, card)), False
        with suppress(torch.cuda.OutOfMemoryError):
            for (first, last), X in pending:
                found = scores(X, first, last)
                todo.pop(0)
                yield (first, last), found
            done = True
        if not done:
            torch.cuda.empty_cache()
            first, last = todo.pop(0)
            if last - first < 2:
                raise torch.cuda.OutOfMemoryError("the largest bag does not fit the GPU; use device='cpu'")
            todo[:0] = [(first, (first + last) // 2), ((first + last) // 2, last)]
