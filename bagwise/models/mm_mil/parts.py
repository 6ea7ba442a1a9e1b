"""MM-MIL on shards: all labels and starts climb together, one pass over the parts for each of their steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bagwise.base.blocks import Block, Blocks, evenly, rows_at
from bagwise.compute.optim import Lockstep
from bagwise.compute.parts import Parts, add, map_reduce
from bagwise.compute.scaling import Scaling, apply_scaling
from bagwise.compute.segment import segment_argmax
from bagwise.compute.threads import small_products
from bagwise.models.mm_mil.fit_features import N_PAIRS, Kernel, gaussian_kernel, kernel_of
from bagwise.models.mm_mil.objective import BagLosses, Descended
from bagwise.models.mm_mil.problem import (
    MOST_ROWS,
    dense_rows,
    inherited_expert,
    inherited_losses,
    inherited_weights,
)
from bagwise.models.mm_mil.solvers import Solution, start_and_solve

__all__ = ["OfParts", "drawn_landmarks", "learn_labels", "together"]

_MOST_NUMBERS = 16e6  # in the rows that the starts of all labels cluster


class Prepared(NamedTuple):
    """Features of a block, its bags and labels, and its place among the blocks."""

    Phi: Any
    offsets: np.ndarray
    Y: np.ndarray
    number: int


def prepared(scaling: Scaling, kernel: Kernel | None, number: int, block: Block) -> Prepared:
    """Features of one block."""
    Phi = apply_scaling(block.bags.X, scaling)
    if kernel is not None:
        Phi = gaussian_kernel(Phi, kernel.landmarks, kernel.sigma2) @ kernel.whitening
    return Prepared(Phi, block.bags.offsets, block.Y, number)


def drawn_landmarks(
    blocks: Blocks, scaling: Scaling, n_landmarks: int, width_scale: float, rng: np.random.RandomState
) -> Kernel:
    """Landmarks drawn from all instances, and the width from pairs of them, in one pass."""
    n = int(blocks.part_rows.sum())
    draw = np.random.default_rng(rng.randint(2**31 - 1))
    pairs = draw.integers(n, size=(2, N_PAIRS))
    chosen = np.sort(draw.choice(n, min(n, n_landmarks), replace=False, shuffle=False))
    with small_products(0.0):
        return kernel_of(
            lambda numbers: apply_scaling(rows_at(blocks, numbers), scaling), pairs, chosen, width_scale
        )


def learn_labels(
    blocks: Blocks, scaling: Scaling, kernel: Kernel | None, settings: dict[str, Any]
) -> list[Solution | None]:
    """Start and solve for every label that some bags carry and some do not; None for the others."""
    n_features = len(scaling.shift) if kernel is None else kernel.whitening.shape[1]
    each = list(range(len(blocks)))
    parts = blocks.map(partial(prepared, scaling, kernel), each)
    steps = Lockstep(partial(_answer, parts))
    Y, sizes = blocks.labels()[0], blocks.sizes()
    where = _Where(blocks.part_bags, sizes, n_features * blocks.n_labels)
    return together(
        steps, Y, lambda label, each: OfParts(steps, label, Y[:, label], where, n_features, each), [settings]
    )[0]


def varying(Y: np.ndarray) -> list[int]:
    """Labels that some bags carry and some do not."""
    return np.flatnonzero(Y.min(axis=0) < Y.max(axis=0)).tolist()


def together(
    steps: Lockstep, Y: np.ndarray, problem_of: Callable[[int, Any], Any], settings: Sequence[dict[str, Any]]
) -> list[list[Solution | None]]:
    """Start and solve side by side, for each of the settings and every label that varies; else None."""
    labels = varying(Y)
    tasks = [partial(start_and_solve, problem_of(l, each), each) for each in settings for l in labels]
    with small_products(0.0):
        found = iter(steps.each(tasks))
    return [[next(found) if l in labels else None for l in range(Y.shape[1])] for _ in settings]


class _Where:
    """Where bags and instances are: from numbers among all to numbers within each block."""

    def __init__(self, part_bags: np.ndarray, sizes: np.ndarray, numbers_per_row: int) -> None:
        self.ends, self.sizes = np.cumsum(part_bags), sizes
        self.offsets = np.concatenate([[0], np.cumsum(sizes)])
        self.most = int(min(MOST_ROWS, max(100, _MOST_NUMBERS // numbers_per_row)))

    def of_positive(self, labels: np.ndarray) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Some positive bags and some of the instances of all positive bags, evenly spaced, in each block."""
        positive = np.flatnonzero(labels > 0)
        bags = positive[evenly(len(positive), self.most)]
        ends = np.cumsum(self.sizes[positive])
        drawn = evenly(int(ends[-1]), self.most)
        owner = np.searchsorted(ends, drawn, side="right")
        rows = self.offsets[positive[owner]] + drawn - (ends[owner] - self.sizes[positive[owner]])
        found = {}
        for k, end in enumerate(self.ends.tolist()):
            first = int(self.ends[k - 1]) if k else 0
            low, high = self.offsets[first], self.offsets[end]
            some_bags = bags[(bags >= first) & (bags < end)] - first
            some_rows = rows[(rows >= low) & (rows < high)] - low
            if some_bags.size or some_rows.size:
                found[k] = (some_bags, some_rows)
        return found


class OfParts:
    """What starts and solvers ask of one label, as `Problem` answers it in memory."""

    def __init__(
        self, steps: Lockstep, label: int, labels: np.ndarray, where: Any, n_features: int, settings: Any
    ) -> None:
        self.steps, self.label, self.labels, self.where = steps, label, labels, where
        self.n_features = n_features
        self.n_clusters, self.lam, self.beta = settings["n_clusters"], settings["lam"], settings["beta"]

    def smooth(self) -> Descended:
        """Eq. (7) with a soft maximum."""
        return Descended(self._losses(None), self.n_features, self.n_clusters, self.lam, self.beta)

    def inherited(self) -> Descended:
        """Logistic regression of instances on the labels of their bags."""
        weights = inherited_weights(float(self.labels.sum()), len(self.labels))
        return Descended(self._losses(weights), self.n_features, 1, 1.0, self.beta)

    def expert(self) -> np.ndarray:
        """What `inherited_expert` finds."""
        return inherited_expert(self.inherited())

    def _losses(self, weights: Any) -> Callable[[np.ndarray, float], tuple[float, float, np.ndarray]]:
        return lambda P, sharpness: self.steps.ask(("losses", self.label, P.copy(), sharpness, weights))

    def rows(self, expert: np.ndarray, rng: Any) -> tuple[np.ndarray, np.ndarray]:
        """Of some positive bags the instance that the expert likes best, and some of their instances."""
        found = self.steps.ask(("rows", expert, self.where.of_positive(self.labels)))
        return tuple(np.concatenate([rows for rows in kind if len(rows)]) for kind in found)  # type: ignore

    def activation(self, P: np.ndarray) -> float:
        """Mean size of activations of all instances."""
        total, n = self.steps.ask(("activation", P.copy()))
        return total / n

    def each(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """What functions return, side by side."""
        return self.steps.each(functions)


# ---------------------------------------------------------------------- one pass


def _answer(parts: Parts, questions: list[Any]) -> list[Any]:
    return map_reduce(answers, questions, parts, joined)


def answers(questions: list[Any], block: Prepared) -> list[Any]:
    """Answers of one block to all questions: sums, or lists of rows."""
    return [_KINDS[kind](block, *told) for kind, *told in questions]


def joined(a: list[Any], b: list[Any]) -> list[Any]:
    """Answers of two blocks together: sums are added, rows follow each other."""
    return [[p + q for p, q in zip(x, y)] if isinstance(x, list) else add(x, y) for x, y in zip(a, b)]


def _losses(block: Prepared, label: int, P: np.ndarray, sharpness: float, weights: Any) -> Any:
    Phi, offsets, Y, _ = block
    labels = Y[:, label].astype(np.float64)
    if weights is None:
        return BagLosses(Phi, offsets, labels)(P, sharpness)
    return inherited_losses(Phi, offsets, labels, weights)(P, sharpness)


def _rows(block: Prepared, expert: np.ndarray, where: dict[int, Any]) -> list[list[np.ndarray]]:
    none = np.empty(0, dtype=np.int64)
    bags, rows = where.get(block.number, (none, none))
    best = none
    if bags.size:
        best = segment_argmax(np.asarray(block.Phi @ expert[:-1]), block.offsets)[bags]
    return [[dense_rows(block.Phi, best)], [dense_rows(block.Phi, rows)]]


def _activation(block: Prepared, P: np.ndarray) -> tuple[float, int]:
    sizes = np.abs(np.asarray(block.Phi @ P[:-1]) + P[-1])
    return float(sizes.sum()), sizes.size


_KINDS: dict[str, Callable[..., Any]] = {"losses": _losses, "rows": _rows, "activation": _activation}
