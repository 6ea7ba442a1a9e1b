"""A linear member for many bags: MIMLfast, which learns from all of them where others take samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.models.mimlfast.estimator import MIMLFast
from bagwise.models.mimlfast.predict import bag_scores

MANY_BAGS = 3000  # beyond so many it joins in: of fewer it learns less than kernels and forests do


@dataclass(frozen=True)
class LinearRanker:
    """What MIMLFast needs in order to answer, by its own names; what only training needs is left behind."""

    shared_space_: np.ndarray
    shared_intercept_: np.ndarray
    label_weights_: np.ndarray
    offset_: float
    device: str = "cpu"


@dataclass(frozen=True)
class LinearRankers:
    """Mean of some rankers; of an empty bag nothing is known, and it gets the usual score."""

    rankers: list[LinearRanker]
    usual: np.ndarray

    def scores(self, bags: Bags) -> np.ndarray:
        """Scores (n_bags, n_labels), positive for what is more likely there."""
        out = np.tile(self.usual, (len(bags), 1))
        filled = np.flatnonzero(bags.sizes > 0)
        if len(filled):
            some = bags if len(filled) == len(bags) else bags[filled]
            out[filled] = np.mean([bag_scores(ranker, some) for ranker in self.rankers], axis=0)
        return out


def fit_rankers(
    bags: Bags,
    Y: np.ndarray,
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
    *,
    seed: int,
    n_jobs: int | None,
) -> tuple[LinearRankers, np.ndarray, dict[str, Any]]:
    """A ranker per fold; returns them, their answers to the bags of the other part, and facts.

    Examples
    --------
    >>> from bagwise.datasets.synthetic import make_miml
    >>> data = make_miml(n_bags=90, random_state=0)
    >>> folds = [(np.arange(45), np.arange(45, 90)), (np.arange(45, 90), np.arange(45))]
    >>> model, answers, facts = fit_rankers(data.bags, data.Y, folds, seed=0, n_jobs=None)
    >>> bool(((answers > 0) == data.Y).mean() > 0.8), facts["n_folds"]
    (True, 2)
    """
    answers, rankers = np.full(Y.shape, np.nan), []
    for k, (train, test) in enumerate(folds):
        train, test = (part[bags.sizes[part] > 0] for part in (train, test))
        model = MIMLFast(random_state=(seed + k) % 2**31, n_jobs=n_jobs).fit(bags[train], Y[train])
        rankers.append(
            LinearRanker(
                model.shared_space_, model.shared_intercept_, model.label_weights_, float(model.offset_)
            )
        )
        if len(test):
            answers[test] = bag_scores(rankers[-1], bags[test])
    usual = np.nan_to_num(np.nanmean(answers, axis=0))
    answers = np.where(np.isnan(answers), usual, answers)
    facts = {"n_folds": len(folds), "sub_concepts": int(model.n_sub_concepts_), "solver": model.solver_}
    return LinearRankers(rankers, usual), answers, facts
