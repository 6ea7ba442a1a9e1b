"""MM-MIL on a GPU: features, losses and gradients of all labels and starts in one pass, and predictions.

The driver is that of `fit`: here questions are answered. Features are in double precision, as on the
processor: L-BFGS goes hundreds of steps over a surface with many valleys, and single precision would end in
others; they are kept there, or made in every pass. Activations of several questions stand side by side,
(n_instances, 2 M, n_questions). Nothing is added by atomic operations: the same data give the same bits on
the same GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

from bagwise.bags import instance_rows, runs
from bagwise.compute.devices import triton_kernels
from bagwise.compute.optim import Lockstep
from bagwise.compute.scaling import Scaling, apply_scaling
from bagwise.compute.torch_move import as_tensor, fetched, fitting, moved, streamed
from bagwise.compute.torch_ops import Segments, _reduce, segment_argmax, transposed_product
from bagwise.models._shared.gpu import standard_on_gpu
from bagwise.models.mm_mil.fit import places_in_memory, side_by_side
from bagwise.models.mm_mil.fit_features import Kernel, drawn_numbers, kernel_of

Tensor = torch.Tensor
_SHARE_OF_GPU = 0.5  # of its free memory that features may take
_STREAMED = 1 << 28  # bytes of instances at a time where features are made anew in every pass
_CELLS = 1 << 26  # activations at a time
_SIDE_BY_SIDE = 1024  # settings times labels times starts, each a thread that waits for answers
_LONGEST = 1024  # bags with more instances are not for one thread of the GPU
_loops = partial(triton_kernels, "bagwise.models.mm_mil.gpu_triton")


def _doubles(values: Any, device: Any) -> Tensor:
    """Numbers in double precision on a device."""
    return as_tensor(np.ascontiguousarray(values, dtype=np.float64)).to(device)


class FeaturesOf:
    """What makes features, on a device, of instances as given: scaled ones, or those of a kernel."""

    def __init__(self, device: Any, scaling: Scaling | None, kernel: Kernel | None = None) -> None:
        self.device = device
        self.scaling: tuple[Tensor, Tensor] | None = None
        if scaling is not None:
            self.scaling = _doubles(scaling.shift, device), _doubles(scaling.factor, device)
        self.kernel: tuple[Tensor, Tensor, float] | None = None
        if kernel is not None:
            landmarks = _doubles(kernel.landmarks, device)
            self.kernel = landmarks, landmarks.square().sum(dim=1), kernel.sigma2
            # weights of a fitted model are those of the kernel itself
            self.whitening = None if kernel.whitening is None else _doubles(kernel.whitening, device)

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


class GpuFeatures:
    """Features of all (dense) instances: on the device, or, where they do not fit, made in every pass.

    ``resident`` says whether they are kept on the device; by default they are if they fit.
    """

    def __init__(
        self, X: np.ndarray, features_of: FeaturesOf, n_features: int, resident: bool | None = None
    ) -> None:
        self.host, self.of, self.device = X, features_of, features_of.device
        self.shape = (len(X), n_features)
        self.kept: Tensor | None = None
        if resident is None and self.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(self.device)
            resident = 8.0 * len(X) * n_features < _SHARE_OF_GPU * free
        if resident is None or resident:
            with suppress(torch.cuda.OutOfMemoryError):
                room = torch.empty(self.shape, dtype=torch.float64, device=self.device)
                self.kept = moved(X, room, change=self.of)
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


# ---------------------------------------------------------------------- learning


def learn_on_gpu(models: Sequence[Any], bags: Any, Y: np.ndarray, gpu: Any) -> Iterator[tuple[Any, ...]]:
    """For each of some models of the same features what its `_keep` takes; the models learn side by side.

    That is the solutions of all labels, their labels, the number of features, and how features are made.
    """
    model = models[0]
    rng = check_random_state(model.random_state)
    n, d = bags.X.shape
    scaling = Scaling("none", np.zeros(d), np.ones(d))
    if model.standardize:
        scaling = standard_on_gpu(bags.X, gpu)
    seed, kernel = int(rng.randint(2**31 - 1)), None
    if model.kernel == "rbf":
        drawn = drawn_numbers(n, model.n_landmarks, rng)
        kernel = kernel_of(lambda rows: apply_scaling(bags.X[rows], scaling), *drawn, model.width_scale)
        d = kernel.whitening.shape[1]
    features = GpuFeatures(bags.X, FeaturesOf(gpu, scaling, kernel), d)
    made = {"scaling": scaling} | ({} if kernel is None else kernel._asdict())
    settings = [model._settings(seed) for model in models]
    n_tasks = Y.shape[1] * max(each["n_init"] for each in settings)
    step = max(1, _SIDE_BY_SIDE // n_tasks)
    places = partial(places_in_memory, np.asarray(bags.offsets))
    for first in range(0, len(models), step):
        steps = Lockstep(Answers(features, bags.offsets, Y))
        for found in side_by_side(steps, Y, d, places, settings[first : first + step]):
            yield found, Y, d, made


class Answers:
    """Answers to the questions of all settings, labels and starts, those of a kind and shape in one pass."""

    def __init__(self, features: GpuFeatures, offsets: np.ndarray, Y: np.ndarray) -> None:
        self.features, self.offsets = features, np.asarray(offsets, dtype=np.int64)
        self.Y = as_tensor(np.ascontiguousarray(Y, dtype=np.int8)).to(features.device)
        self._there = partial(_doubles, device=features.device)
        self.cells = _CELLS
        self._pieces: tuple[int, list[tuple[int, int, Segments]]] = (0, [])

    def __call__(self, questions: list[Any]) -> list[Any]:
        """Answers, in the order of the questions."""
        kinds: dict[tuple[str, Any], list[int]] = {}
        for i, question in enumerate(questions):
            inherited = question[0] == "losses" and question[-1] is not None
            shape = next(part.shape for part in question if isinstance(part, np.ndarray))
            kinds.setdefault(("inherited" if inherited else question[0], shape), []).append(i)
        found: dict[int, Any] = {}
        for (kind, _), which in kinds.items():
            answer = getattr(self, f"_{kind}")
            found |= zip(which, answer([questions[i][1:] for i in which]))
        return [found[i] for i in range(len(questions))]

    # ------------------------------------------------------------------ passes

    def _pass(self, n_columns: int, step: Callable[..., Tensor]) -> np.ndarray:
        """Sum of ``step(first bag, last bag, their Segments, features)`` over all bags, as an array."""

        def whole(cells: int) -> np.ndarray:
            total: Any = 0.0
            pieces = self._cut(max(1, cells // n_columns))
            rows = [(int(self.offsets[a]), int(self.offsets[b])) for a, b, _ in pieces]
            for (a, b, at), Phi in zip(pieces, self.features.runs(rows)):
                total = total + step(a, b, at, Phi)
            return fetched(total)

        start = max(min(self.cells, self.features.shape[0] * n_columns), n_columns)
        found, cells = fitting(whole, start, "the largest bag", n_columns)
        self.cells = cells if cells < start else self.cells
        return found

    def _cut(self, n_rows: int) -> list[tuple[int, int, Segments]]:
        """Runs of bags of at most about so many instances; the cut before is used again if it will do."""
        n_rows = min(n_rows, self.features.most_rows)
        if n_rows < self.features.shape[0]:
            n_rows = 1 << (n_rows.bit_length() - 1)
        if n_rows != self._pieces[0]:
            pieces = [
                (a, b, Segments.of(self.offsets[a : b + 1] - self.offsets[a], self.features.device))
                for a, b in runs(self.offsets, n_rows)
            ]
            self._pieces = n_rows, pieces
        return self._pieces[1]

    # ------------------------------------------------------------------ one kind of question each

    def _losses(self, questions: list[Any]) -> list[tuple[float, float, np.ndarray]]:
        """Smooth and hard loss and gradient for questions (label, P, sharpness, None)."""
        labels, points, sharpness, _ = zip(*questions)
        P, n = np.stack(points, axis=2), len(questions)  # (n_features + 1, 2 M, questions)
        W, intercept = self._there(P[:-1].reshape(len(P) - 1, -1)), self._there(P[-1].ravel())
        which, v = as_tensor(np.array(labels)).to(W.device), self._there(sharpness)

        def step(a: int, b: int, at: Segments, Phi: Tensor) -> Tensor:
            F = torch.addmm(intercept, Phi, W).view(len(Phi), -1, n)
            signs = 1.0 - 2.0 * self.Y[a:b].index_select(1, which).double()
            smooth, hard, G = losses(F, at, signs, v)
            G = G.view(len(Phi), -1)
            parts = (smooth, hard, G.sum(dim=0), transposed_product(Phi, G).ravel())
            return torch.cat(parts)

        found = self._pass(P[0].size, step)
        smooth, hard, last = found[:n], found[n : 2 * n], found[2 * n : 2 * n + P[0].size]
        G = np.empty(P.shape)
        G[-1] = last.reshape(P.shape[1:])
        G[:-1] = found[2 * n + P[0].size :].reshape(G[:-1].shape)
        return [(float(smooth[i]), float(hard[i]), np.ascontiguousarray(G[:, :, i])) for i in range(n)]

    def _inherited(self, questions: list[Any]) -> list[tuple[float, float, np.ndarray]]:
        """The same for instances with the labels of their bags; one expert is its own log-odds."""
        labels, points, _, weights = zip(*questions)
        P, n = np.column_stack([point[:, 0] for point in points]), len(questions)
        W, intercept = self._there(P[:-1]), self._there(P[-1])
        which, (negative, positive) = as_tensor(np.array(labels)).to(W.device), self._there(weights).T

        def step(a: int, b: int, at: Segments, Phi: Tensor) -> Tensor:
            y = self.Y[a:b].index_select(1, which).double()
            shares = (negative + y * (positive - negative)) / at.offsets.diff()[:, None]
            signs, shares = (1.0 - 2.0 * y).index_select(0, at.index), shares.index_select(0, at.index)
            x = signs * torch.addmm(intercept, Phi, W)
            G = shares * signs * torch.sigmoid(x)
            value = -(shares * torch.nn.functional.logsigmoid(-x)).sum(dim=0)
            return torch.cat([value, G.sum(dim=0), transposed_product(Phi, G).ravel()])

        found = self._pass(n, step)
        value, G = found[:n], np.zeros((*P.shape, 2))
        G[-1, :, 0], G[:-1, :, 0] = found[n : 2 * n], found[2 * n :].reshape(-1, n)
        return [(float(value[i]), float(value[i]), G[:, i]) for i in range(n)]

    def _activation(self, questions: list[Any]) -> list[tuple[float, int]]:
        """Sum and number of the sizes of activations."""
        P = np.stack([point for (point,) in questions], axis=2)
        W, intercept = self._there(P[:-1].reshape(len(P) - 1, -1)), self._there(P[-1].ravel())

        def step(a: int, b: int, at: Segments, Phi: Tensor) -> Tensor:
            F = torch.addmm(intercept, Phi, W).abs_().view(len(Phi), -1, len(questions))
            return F.sum(dim=(0, 1))

        found = self._pass(P[0].size, step)
        return [(float(total), self.features.shape[0] * P.shape[1]) for total in found]

    def _rows(self, questions: list[Any]) -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
        """The instance of each bag that the expert likes best, and some instances."""
        found = []
        for expert, places in questions:
            bags, rows = places[0]
            found.append(([self._best(expert, bags)], [fetched(self.features.some(rows))]))
        return found

    def _best(self, expert: np.ndarray, bags: np.ndarray) -> np.ndarray:
        rows, offsets = instance_rows(self.offsets, bags)
        t = self._there(expert[:-1])

        def found(n_rows: int) -> np.ndarray:
            best = []
            for a, b in runs(offsets, n_rows):
                Phi = self.features.some(rows[offsets[a] : offsets[b]])
                at = Segments.of(offsets[a : b + 1] - offsets[a], self.features.device)
                best.append(fetched(Phi[segment_argmax(Phi @ t, at)]))
            return np.concatenate(best)

        n_rows = max(1, min(_CELLS // max(self.features.shape[1], 1), self.features.most_rows, len(rows)))
        return fitting(found, n_rows, "the largest bag")[0]


# ---------------------------------------------------------------------- from activations to losses


def log_odds(F: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-odds of instances, P(z | x, +) and P(z | x, -), from activations (n, 2 M, columns)."""
    a, s = F.chunk(2, dim=1)
    u, w = s + torch.nn.functional.logsigmoid(a), s + torch.nn.functional.logsigmoid(-a)
    log_p, log_n = (torch.logsumexp(x, dim=1, keepdim=True) for x in (u, w))
    return (log_p - log_n)[:, 0], torch.exp(u - log_p), torch.exp(w - log_n)


def losses(F: Tensor, at: Segments, signs: Tensor, sharpness: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Smooth and hard losses of bags, per column, and the gradient of the smooth ones by the activations.

    ``F`` (n_instances, 2 M, columns) are activations, which may be written over; ``signs`` (n_bags, columns)
    are -1 for positive bags, 1 for negative ones; ``sharpness`` (columns,) is that of the soft maximum.
    """
    if F.is_cuda and at.longest <= _LONGEST and _loops() is not None:
        return _loops().losses(F, at.offsets, signs, sharpness)
    r, plus, minus = log_odds(F)
    y = torch.sigmoid(F[:, : F.shape[1] // 2])
    top = _reduce(r.contiguous(), at, "max")
    share = torch.exp(sharpness * (r - top.index_select(0, at.index)))
    total = _reduce(share, at, "sum")
    g = top + torch.log(total) / sharpness
    smooth, hard = (-torch.nn.functional.logsigmoid(-signs * x).sum(dim=0) for x in (g, top))
    slope = signs * torch.sigmoid(signs * g) / total
    share = (share * slope.index_select(0, at.index))[:, None]
    # dr/da = q+ (1 - y) + q- y; dr/ds = q+ - q-
    G = torch.cat([(plus * (1.0 - y) + minus * y) * share, (plus - minus) * share], dim=1)
    return smooth, hard, G


# ---------------------------------------------------------------------- predicting


def predicted_on_gpu(model: Any, bags: Any, gpu: Any, kind: str) -> Any:
    """Log-odds of dense "bags" or of "instances", or of instances with P(z | x, +): "posteriors"."""
    features_of = FeaturesOf(gpu, None)
    if model.kernel == "rbf":
        landmarks = model.landmarks_.toarray() if hasattr(model.landmarks_, "indptr") else model.landmarks_
        features_of = FeaturesOf(gpu, model._scaling, Kernel(landmarks, model.sigma2_, None))
    coef, intercept = model._weights
    n_labels, _, M, d = coef.shape
    W = _doubles(coef.transpose(1, 2, 0, 3).reshape(-1, d).T, gpu)
    b = _doubles(intercept.transpose(1, 2, 0).ravel(), gpu)
    offsets = np.asarray(bags.offsets)
    r = np.empty((len(bags) if kind == "bags" else bags.n_instances, n_labels))
    plus = np.empty((bags.n_instances, n_labels, M)) if kind == "posteriors" else None

    def work(n_rows: int) -> None:
        bounds = list(runs(offsets, n_rows))
        rows = [(int(offsets[first]), int(offsets[last])) for first, last in bounds]
        for (first, last), (i, j), X in zip(bounds, rows, streamed(bags.X, rows, gpu)):
            F = torch.addmm(b, features_of(X), W).view(len(X), 2 * M, n_labels)
            odds, shares, _ = log_odds(F)
            if kind == "bags":
                at = Segments.of(offsets[first : last + 1] - offsets[first], gpu)
                r[first:last] = fetched(_reduce(odds.contiguous(), at, "max"))
            else:
                r[i:j] = fetched(odds)
            if plus is not None:
                plus[i:j] = fetched(shares.transpose(1, 2).contiguous())

    n_columns = max(2 * M * n_labels, d, bags.n_features, 1)
    fitting(work, max(1, min((_CELLS // 4) // n_columns, bags.n_instances)), "the largest bag")
    return r if plus is None else (r, plus)
