"""Settings of MIMLmix chosen on held-out training bags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.metrics import average_precision
from bagwise.models._mimlmix_em import Layout, train
from bagwise.models._mimlmix_predict import infer_block, likelihoods
from bagwise.models._mimlmix_topics import fit_topics, label_distributions

GRID = {
    "kappa": (10.0, 100.0, 300.0, 1000.0),
    "nu": (3.0, 10.0, 30.0, 100.0),
    "alpha_train": (1.0, 5.0, 20.0),
    "eta": (0.0, 1.0, 3.0, 10.0, 30.0),
    "xi": (0.01, 0.03, 0.1, 0.3, 1.0),
}
START = {"kappa": 300.0, "nu": 10.0, "alpha_train": 5.0, "eta": 3.0, "xi": 0.1}
_INNER_ITERATIONS = 20  # the order of settings does not change after a few iterations of EM
_MAX_TRAIN, _MAX_HELD = 4000, 300


class Held:
    """Splits of the training bags on which settings are compared."""

    def __init__(
        self,
        views: Mapping[str, Bags],
        Y: np.ndarray,
        n_labels: int,
        hypers: Mapping[str, dict],
        fixed: dict[str, Any],
        rng: Any,
    ) -> None:
        self.views, self.Y, self.n_labels, self.hypers, self.fixed = views, Y, n_labels, hypers, fixed
        n_bags = len(Y)
        order = rng.permutation(n_bags)
        if n_bags < 600:  # small sets: three folds, since a single part would be too few bags
            parts = np.array_split(order, min(3, n_bags))
        else:
            parts = [order[: min(n_bags // 4, _MAX_HELD)]]
        self.splits = [(np.setdiff1d(order, part), part) for part in parts]
        self.splits = [(rng.permutation(rest)[:_MAX_TRAIN], part) for rest, part in self.splits]
        # a label without bags on the training side has no model there: it is no candidate
        self.present = [np.flatnonzero(Y[rest].any(axis=0)) for rest, _ in self.splits]
        self.seed = rng.randint(2**31 - 1)
        self.topics: list[tuple[np.ndarray, np.ndarray]] = []
        self.blocks: list[Any] = []
        self.trained_with: tuple = ()

    def fit_topics(self, n_topics: int, smoothing: float) -> None:
        """Topics of the training side of every split."""
        self.topics = []
        for (rest, _), present in zip(self.splits, self.present):
            rng = np.random.RandomState(self.seed)
            sets = self.Y[np.ix_(rest, present)]
            counts = fit_topics(sets, n_topics, rng, alpha=self.fixed["alpha_topic"])
            share = counts.sum(axis=1) + 1e-12
            beta = np.ascontiguousarray(label_distributions(counts, smoothing).T)
            self.topics.append((beta, share / share.sum()))

    def scores(self, s: dict[str, float]) -> list[np.ndarray]:
        """Gamma of the held-out bags of every split under settings ``s``."""
        key = (s["kappa"], s["nu"], s["alpha_train"])
        if key != self.trained_with:
            hypers = {v: {**h, "kappa": s["kappa"], "nu": s["nu"]} for v, h in self.hypers.items()}
            self.blocks = [self._block(k, hypers, s["alpha_train"]) for k in range(len(self.splits))]
            self.trained_with = key
        result = []
        settings = {**self.fixed, "eta": s["eta"], "xi": s["xi"]}
        for k, (_, held) in enumerate(self.splits):
            beta, share = self.topics[k]
            gamma = np.zeros((len(held), self.Y.shape[1]))
            block = self.blocks[k]._replace(P=self.blocks[k].P.copy())  # inference works in place
            gamma[:, self.present[k]] = infer_block(block, beta, share, settings)[0]
            result.append(gamma)
        return result

    def _block(self, k: int, hypers: dict[str, dict], alpha: float) -> Any:
        """Train on one side of a split; likelihoods of the other side, which all priors share."""
        (rest, held), present, fixed = self.splits[k], self.present[k], self.fixed
        part = {v: bags[rest] for v, bags in self.views.items()}
        model = train(
            Layout(part, self.Y[np.ix_(rest, present)], hypers),
            alpha=alpha,
            tau=fixed["tau"],
            max_iter=min(fixed["max_iter"], _INNER_ITERATIONS),
            tol=1e-5,
            tied_start=fixed["tied_start"],
            max_inner=fixed["max_inner"],
        )
        part = {v: bags[held] for v, bags in self.views.items()}
        return likelihoods(part, dict(zip(self.views, model.views)), model.weights, len(present))

    def quality(self, s: dict[str, float]) -> float:
        """Average precision of the held-out bags."""
        values = []
        for (_, held), gamma in zip(self.splits, self.scores(s)):
            values.append(average_precision(self.Y[held][:, : self.n_labels], gamma[:, : self.n_labels]))
        return float(np.nanmean(values)) if np.isfinite(values).any() else 0.0


def choose_settings(held: Held, given: dict[str, Any], kinds: set[str]) -> tuple[dict[str, float], list]:
    """Search one setting after the other; a later pass looks again at the prior of prediction.

    Parameters
    ----------
    held : Held
        Held-out bags, topics fitted.
    given : dict
        Setting -> number, or "auto" for those to be chosen.
    kinds : set of str
        Kinds of views that occur; the smoothing of other kinds is left alone.

    Returns
    -------
    settings : dict
        All settings.
    tried : list of (dict, float)
        What was tried and its average precision on the held-out bags.
    """
    current = {k: START[k] if given[k] == "auto" else float(given[k]) for k in START}
    free = [k for k in START if given[k] == "auto"]
    if "counts" not in kinds and "kappa" in free:
        free.remove("kappa")
    if "gaussian" not in kinds and "nu" in free:
        free.remove("nu")
    tried: list[tuple[dict[str, float], float]] = []
    if not free:
        return current, tried
    known: dict[tuple, float] = {}

    def value(s: dict[str, float]) -> float:
        key = tuple(s.values())
        if key not in known:
            known[key] = held.quality(s)
            tried.append((dict(s), known[key]))
        return known[key]

    for name in ["xi", "eta", "xi", "kappa", "nu", "alpha_train", "eta", "xi", "eta"]:
        if name in free:
            options = [{**current, name: option} for option in GRID[name]]
            current = max([current, *options], key=value)  # the present value wins a tie
    return current, tried


def best_global_threshold(held: Held, s: dict[str, float]) -> float:
    """Threshold on gamma with the least Hamming loss on the held-out bags."""
    truth = np.concatenate([held.Y[part][:, : held.n_labels].ravel() for _, part in held.splits]) > 0
    scores = np.concatenate([gamma[:, : held.n_labels].ravel() for gamma in held.scores(s)])
    order = np.argsort(-scores, kind="stable")
    gain = np.cumsum(np.where(truth[order], 1, -1))
    best = int(gain.argmax())
    if gain[best] <= 0:
        return float(np.nextafter(scores.max(), np.inf))
    below = scores[order[best + 1]] if best + 1 < len(order) else 0.0
    return float((scores[order[best]] + below) / 2.0)
