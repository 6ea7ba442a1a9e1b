"""ORed logistic regression as sums over blocks of bags: what is counted, prepared and climbed in each."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bagwise.bags import instance_rows
from bagwise.base.blocks import Block, Blocks
from bagwise.compute.devices import gpu_for
from bagwise.compute.parts import Parts, map_reduce
from bagwise.compute.scaling import Scaling, apply_scaling, is_text, positive_rows
from bagwise.models.ored.known import Known, known_classes
from bagwise.models.ored.likelihood import UnionLikelihood, posterior

__all__ = ["Setup", "SummedLikelihood", "Treatment", "card_of", "count_bags", "prepared", "rows", "usable"]


class Treatment(NamedTuple):
    """How label sets are taken: where the background may be, and what becomes of sets that cannot be."""

    background: Any  # "anywhere", "empty" or False
    max_labels: int
    unusable_bags: str
    prune: float
    inference: dict[str, Any]  # algorithm of the posteriors


class Usable(NamedTuple):
    """Weights of the bags that take part, those that give candidate sets only, and why."""

    weights: np.ndarray
    candidates: np.ndarray
    impossible: np.ndarray
    too_many: np.ndarray


def usable(block: Block, how: Treatment) -> Usable:
    """Which bags of a block take part, and how."""
    bags, Y, weights, _ = block
    n_labels = Y.sum(axis=1)
    impossible = n_labels > bags.sizes
    if not how.background:
        impossible |= n_labels == 0
    too_many = n_labels > how.max_labels
    clamps = clamps_of(block, how)
    if clamps is not None:
        impossible |= _contradicted(block, how, clamps) & ~too_many
    unusable = impossible | too_many
    candidates = unusable & (how.unusable_bags == "candidates")
    used = np.where(unusable & ~candidates, 0.0, weights)
    if how.prune > 0:
        cost = np.where(used > 0, bags.sizes * n_labels * 2.0**n_labels, -1.0)
        kept = np.argsort(cost, kind="stable")[: len(bags) - int(how.prune * (used > 0).sum())]
        used = np.where(np.isin(np.arange(len(bags)), kept), used, 0.0)
    return Usable(used, candidates, impossible, too_many)


def clamps_of(block: Block, how: Treatment) -> Known | None:
    """Classes that instances may have, where some are known."""
    return known_classes(block.known, block.Y.shape[1], bool(how.background))


def _contradicted(block: Block, how: Treatment, clamps: Known) -> np.ndarray:
    """Bags whose set cannot be the union of what their instances are known to carry or not."""
    bags = block.bags
    result = np.zeros(len(bags), dtype=bool)
    which = np.unique(bags.index[clamps.rows])
    rows, offsets = instance_rows(bags.offsets, which)
    logits = np.zeros((len(rows), block.Y.shape[1] + bool(how.background)))
    logits[np.searchsorted(rows, clamps.rows)] = np.where(clamps.allowed, 0.0, -np.inf)
    sets = with_background(block.Y, how.background)[which]
    anywhere = how.background == "anywhere"
    result[which] = np.isneginf(posterior(logits, offsets, sets, background=anywhere, **how.inference)[1])
    return result


def first_facts(_: None, block: Block) -> dict[str, Any]:
    """Counts that settle what "auto" stands for."""
    bags, Y = block.bags, block.Y
    cells = bags.n_instances * bags.n_features
    filled = np.count_nonzero(bags.X.data if bags.is_sparse else bags.X)
    return {
        "n_bags": len(Y),
        "n_unlabelled": int((~Y.any(axis=1)).sum()),
        "label_counts": Y.sum(axis=0, dtype=np.int64),
        "cells": cells,
        "filled": int(filled),
    }


def facts_in_memory(block: Block, text: bool | None = None) -> dict[str, Any]:
    """The same, with a look at the first tenth of the instances instead of all, if at any."""
    empty = Block(block.bags[:0], block.Y[:0], block.weights[:0])
    text = is_text(block.bags.X) if text is None else text
    Y = block.Y
    counts = {"n_bags": len(Y), "n_unlabelled": int((~Y.any(axis=1)).sum())}
    counts["label_counts"] = Y.sum(axis=0, dtype=np.int64)
    return first_facts(None, empty) | counts | {"cells": 10, "filled": 0 if text else 10}


def count_bags(how: Treatment, block: Block) -> dict[str, Any]:
    """What the likelihood needs to know of all bags before it is climbed."""
    found = usable(block, how)
    bad = found.impossible | found.too_many
    row_weights = found.weights[block.bags.sizes > 0]
    return {
        "n_unusable": int(bad.sum()),
        "n_impossible": int(found.impossible.sum()),
        "n_over": int((found.too_many & ~found.impossible).sum()),
        "first": [block.bags.bag_ids[np.flatnonzero(bad)[0]].item()] if bad.any() else [],
        "weight": float(found.weights.sum()),
        "carried": (block.Y[found.weights > 0] > 0).sum(axis=0),
        "range": [float(row_weights.min(initial=np.inf)), float(row_weights.max(initial=-np.inf))],
    }


def joined_counts(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Counts of two blocks together: sums, the first id, the range of weights."""
    sums = {key: a[key] + b[key] for key in a if key not in ("first", "range")}
    low, high = zip(a["range"], b["range"])
    return sums | {"first": (a["first"] + b["first"])[:1], "range": [min(low), max(high)]}


class Setup(NamedTuple):
    """All that a block needs to become a likelihood."""

    how: Treatment
    classes: np.ndarray  # columns of the labels, and of the background, that occur
    scaling: Scaling
    dictionary: Any  # of the kernel, None without one
    fit_intercept: bool
    device: str = "cpu"


def rows(how: Treatment, plain: bool, block: Block) -> tuple[Any, np.ndarray | None]:
    """Instances of a block and their weights, None where all weigh the same, for the scaling."""
    if plain:
        return block.bags.X, None
    return positive_rows(block.bags.X, usable(block, how).weights[block.bags.index])


def scaled_rows(block: Block, scaling: Scaling) -> Any:
    """Scaled instances in the number type that they came in."""
    return apply_scaling(block.bags.X, scaling, block.bags.dtype)


def with_background(Y: np.ndarray, background: Any) -> np.ndarray:
    """Label sets with the background as last column: of every bag, or of those without labels."""
    if not background:
        return Y
    carried = np.ones(len(Y), dtype=bool) if background == "anywhere" else ~Y.any(axis=1)
    return np.column_stack([Y, carried.astype(np.int8)])


def likelihood_of(setup: Setup, block: Block) -> Any:
    """The likelihood of one block, without a penalty."""
    card = card_of(setup.device, block.bags)
    if card is not None:
        from bagwise.models.ored.card import likelihood_on_card

        return likelihood_on_card(setup, block, card)
    found, clamps = usable(block, setup.how), clamps_of(block, setup.how)
    features = scaled_rows(block, setup.scaling)
    if setup.dictionary is not None:
        features = setup.dictionary.transform(features)
    return UnionLikelihood(
        features,
        block.bags.offsets,
        np.ascontiguousarray(with_background(block.Y, setup.how.background)[:, setup.classes]),
        found.weights,
        alpha=0.0,
        fit_intercept=setup.fit_intercept,
        background=setup.how.background == "anywhere",
        candidates=found.candidates,
        known=None if clamps is None else clamps.of_classes(setup.classes),
        **setup.how.inference,
    )


def card_of(device: str, bags: Any) -> Any:
    """The card that dense instances go to, None where they stay here."""
    if device == "cpu" or bags.is_sparse:
        return None
    card = gpu_for(device, bags.n_instances * bags.n_features)
    return None if card is None or is_text(bags.X) else card


def prepared(blocks: Blocks, setup: Setup) -> Parts:
    """Likelihoods of all blocks: on a card, kept in memory, or made again in every pass."""
    if blocks.kind == "gpu":
        return blocks.likelihoods(setup)  # type: ignore[attr-defined]
    return blocks.map(partial(likelihood_of, setup))


def value_and_gradient(W: np.ndarray, problem: Any) -> tuple[float, np.ndarray]:
    """Log-likelihood of a block and its gradient."""
    return problem.value_and_gradient(W)


class SummedLikelihood:
    """The penalised likelihood of all blocks; see `UnionLikelihood`.

    Parameters
    ----------
    parts : Parts
        Likelihoods of the blocks.
    shape : tuple of int
        Shape of the parameters.
    weight : float
        Sum of the weights of all bags.
    alpha : float
        Strength of the penalty.
    """

    def __init__(self, parts: Parts, shape: tuple[int, int], weight: float, alpha: float) -> None:
        self.parts, self.shape, self.weight, self.alpha = parts, shape, weight, alpha

    def value_and_gradient(self, W: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective and its gradient."""
        value, G = map_reduce(value_and_gradient, W, self.parts)
        G = G.copy()
        G[:, :-1] -= self.alpha * W[:, :-1]
        return value - 0.5 * self.alpha * float(np.square(W[:, :-1]).sum()), G
