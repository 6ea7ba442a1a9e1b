"""What there is to learn from a session: bags, their labels and their parts, with corrections in place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bagwise.actions.looking.session import Session
from bagwise.bags.dataset import UNKNOWN
from bagwise.actions.matching import File, align_labels, open_data
from bagwise.bags import Bags
from bagwise.bags.dataset import Dataset
from bagwise.errors import BagwiseError, DataError


class Lesson(NamedTuple):
    """What there is to learn: bags with labels, and what is known of their parts: 1, 0 or -1 per label."""

    dataset: Dataset
    known: np.ndarray
    n_corrected: int


def lesson(session: Session, train: File | Dataset | None = None) -> Lesson:
    """Bags and labels to learn from, with corrections in place.

    Without ``train``, all bags of labelled data; of data without labels those that somebody spoke about, with
    what the model says where nobody did. With ``train``, its bags and the corrected ones.
    """
    truth = session.truth
    spoken = np.flatnonzero(session.spoken > 0)
    use_all = session.dataset.has_labels and train is None
    which = np.arange(len(truth)) if use_all else spoken
    if not len(which) and train is None:
        raise BagwiseError(
            "there is nothing to learn from: these data have no labels and nobody has corrected a bag yet"
        )
    sets = session.shown(truth)[which].astype(np.int8)
    if session.dataset.has_labels:  # what is unsure stays as the data have it
        unsure = truth[which] == UNKNOWN
        given = np.zeros_like(sets)
        given[:, session.given_columns] = session.dataset[which].Y
        sets = np.where(unsure, given, sets)
    names, bags = list(session.names), session.bags[which]
    known = _known_parts(session, which, sets)
    if train is not None:
        first = train if isinstance(train, Dataset) else open_data(train)
        names, first_bags, first_Y = _aligned(first, names, bags)
        bags = Bags.concat([first_bags, bags])
        known = np.concatenate([np.full((first_bags.n_instances, len(names)), -1), _wider(known, names, -1)])
        sets = np.concatenate([first_Y, _wider(sets, names, 0)])
    some = np.flatnonzero(sets.any(axis=0) | np.isin(names, session.corrections.labels()))
    if not len(some):
        raise BagwiseError("there is nothing to learn from: no bag carries a label")
    dataset = Dataset(bags, sets[:, some], tuple(names[k] for k in some), recipe=session.dataset.recipe)
    return Lesson(dataset, known[:, some].astype(np.int8), len(spoken))


def _aligned(first: Dataset, names: list[str], bags: Bags) -> tuple[list[str], Bags, np.ndarray]:
    """Data that the model learned from before, with labels in one order with the new ones."""
    if not isinstance(first.bags, Bags) or first.bags.n_features != bags.n_features:
        raise DataError(
            f"the data to learn from have {first.bags.shape[1]} features, those looked at {bags.n_features}"
        )
    together = list(dict.fromkeys([*names, *first.label_names]))
    Y, _, _ = align_labels(first, together)
    plain = Bags(first.bags.X, first.bags.offsets, feature_names=bags.feature_names)
    return together, plain.with_info(**_no_facts(bags, plain.n_instances)), Y


def _no_facts(bags: Bags, n: int) -> dict[str, np.ndarray]:
    """Room for facts that only the other bags have; models never see them."""
    return {name: np.zeros((n, *v.shape[1:]), dtype=v.dtype) for name, v in bags.instance_info.items()}


def _wider(matrix: np.ndarray, names: list[str], fill: int) -> np.ndarray:
    wide = np.full((len(matrix), len(names)), fill, dtype=matrix.dtype)
    wide[:, : matrix.shape[1]] = matrix
    return wide


def _known_parts(session: Session, which: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """1 where a part carries a label, 0 where it does not, -1 where nobody said so."""
    sizes = session.sizes[which]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    known = np.full((starts[-1], len(session.names)), -1, dtype=np.int8)
    for at, number in enumerate(which):
        if session.spoken[number]:
            for part, said in session.corrections.parts(session.ids[number]).items():
                row = known[starts[at] + part]
                if said.none:
                    row[:] = 0
                for name in said.not_labels:
                    row[session.column[name]] = 0
                column = session.column.get(said.label or "", -1)
                if (
                    column >= 0 and sets[at, column]
                ):  # a label that the bag was denied afterwards is not known
                    row[column] = 1
    return known
