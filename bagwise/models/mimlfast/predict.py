"""Scores of a fitted MIMLfast model, for any number of bags in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bagwise.bags import Bags, runs
from bagwise.compute.devices import gpu_for
from bagwise.compute.segment import segment_argmax, segment_max

__all__ = ["CELLS", "bag_scores", "instance_scores", "sub_concepts"]

CELLS = 1 << 22  # scores that are held at a time
CARD_CELLS = 1 << 25  # the same on a card


def bag_scores(model: Any, bags: Bags) -> np.ndarray:
    """f_l less f_dummy and the offset, for every bag and label."""
    card = _card(model, bags)
    if card is None:
        found = (segment_max(_over_sub_concepts(F), part.offsets) for part, F in _blocks(model, bags))
    else:
        found = (F for _, F in _on_card(model, bags, card, of_bags=True))
    scores = np.concatenate(list(found))
    return scores[:, :-1] - scores[:, -1:] - model.offset_


def instance_scores(model: Any, bags: Bags) -> np.ndarray:
    """The same with one instance in place of the maximum; the dummy stays that of the bag."""
    card = _card(model, bags)
    parts: Iterator[tuple[Bags, np.ndarray]]
    if card is None:
        parts = ((part, _over_sub_concepts(F)) for part, F in _blocks(model, bags))
    else:
        parts = _on_card(model, bags, card, of_bags=False)
    result = []
    for part, F in parts:
        dummy = segment_max(np.ascontiguousarray(F[:, -1:]), part.offsets)
        result.append(F[:, :-1] - dummy[part.index] - model.offset_)
    return np.concatenate(result)


def sub_concepts(model: Any, bags: Bags) -> tuple[np.ndarray, np.ndarray]:
    """Best sub-concept of each label in each bag, and the row of the instance where it is found."""
    which, where, start = [], [], 0
    for part, F in _blocks(model, bags):
        rows = segment_argmax(np.ascontiguousarray(F.max(axis=2)[:, :-1]), part.offsets)
        which.append(F[rows, np.arange(F.shape[1] - 1)].argmax(axis=2))
        where.append(rows + start)
        start += part.n_instances
    return np.concatenate(which), np.concatenate(where)


def _card(model: Any, bags: Bags) -> Any:
    return None if bags.is_sparse else gpu_for(model.device, bags.n_instances * bags.n_features)


def _on_card(model: Any, bags: Bags, card: Any, *, of_bags: bool) -> Iterator[tuple[Bags, np.ndarray]]:
    """Runs of bags with the best scores over sub-concepts of the bags, or of their instances."""
    from bagwise.models.mimlfast.card_scores import scores_on_card

    bounds = list(runs(bags.offsets, max(CARD_CELLS // model.label_weights_[..., 0].size, 1)))
    for (first, last), F in scores_on_card(model, bags, bounds, card, of_bags=of_bags):
        yield bags[first:last], F


def _over_sub_concepts(F: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(F.max(axis=2))


def _blocks(model: Any, bags: Bags) -> Iterator[tuple[Bags, np.ndarray]]:
    """Runs of bags with the scores (instances, L + 1, K) of their instances."""
    n_all, K, m = model.label_weights_.shape
    W = model.label_weights_.reshape(-1, m)
    for first, last in runs(bags.offsets, max(CELLS // len(W), 1)):
        part = bags[first:last]
        P = np.asarray(part.X @ model.shared_space_.T) + model.shared_intercept_
        yield part, (P @ W.T).reshape(len(P), n_all, K)
