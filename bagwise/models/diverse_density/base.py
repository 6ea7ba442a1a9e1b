"""What methods with concepts share: learning label by label, scores in log-odds, the threshold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from bagwise.base.parameters import JOBS, Choice, Number, Rules, Seed, Whole
from bagwise.errors import warn
from bagwise.models._shared.scores import best_offset
from bagwise.models.diverse_density.objective import distances
from bagwise.models.svm.base import SCALING, ScaledClassifier
from bagwise.utils.arrays import check_memory

# what the parameters that all have may be
CONCEPTS: Rules = {
    "n_starts": (Choice("all"), Whole(1)),
    "init_scale": (Choice("auto"), Number(above=0)),
    "max_scale": Number(above=0),
    "max_iter": Whole(1),
    "tol": Number(0),
    "scaling": SCALING,
    "n_jobs": JOBS,
    "random_state": Seed(),
}


class ConceptClassifier(ScaledClassifier):
    """A label is one concept or several; a subclass learns them and pools distances to them.

    It writes ``_concepts(X, offsets, Y)``, which sets what is learned, ``_bag_log_odds(Q, offsets)`` and
    ``_instance_log_odds(Q)`` of one label. Labels are predicted above the log-odds that are wrong least often
    in training.
    """

    concepts_: list[np.ndarray]
    scales_: list[np.ndarray]
    init_scale: Any
    random_state: Any
    max_iter: int

    def _concepts(self, X: np.ndarray, offsets: np.ndarray, Y: np.ndarray) -> None:
        raise NotImplementedError

    def _bag_log_odds(self, Q: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _instance_log_odds(self, Q: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _fit(self, bags, Y):
        super()._fit(bags, Y)
        self.offset_ = np.zeros(Y.shape[1])
        S = self._scores(bags)
        for label in np.flatnonzero(np.isnan(self.constant_scores_)):
            self.offset_[label] = best_offset(S[:, label : label + 1], Y[:, label : label + 1])

    def _learn(self, X, offsets, Y):
        self._concepts(dense(X), offsets, Y)

    def _settings(self, X, *names):
        """Parameters by name, with what depends on the data; every label starts from the same seed."""
        settings = {name: getattr(self, name) for name in names}
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return settings | {"init_scale": first_scale(self.init_scale, X.shape[1]), "seed": seed}

    def _keep(self, found: Sequence[Any], concepts: Callable[[Any], tuple[np.ndarray, np.ndarray]]) -> None:
        """Set what was learned of every label, None for constant ones; ``concepts`` of one search."""
        none = np.empty((0, self.n_features_in_))
        kept = [(none, none) if f is None else concepts(f) for f in found]
        self.concepts_, self.scales_ = [points for points, _ in kept], [scales for _, scales in kept]
        self.objective_ = [np.empty(0) if f is None else np.sort(f.values) for f in found]
        self.n_iter_ = max((int(f.n_iter.max()) for f in found if f is not None), default=0)
        restless = sum(f is not None and not f.at_rest[f.values.argmin()] for f in found)
        if restless:
            warn(
                f"{restless} of {len(found)} labels stopped at max_iter={self.max_iter} before they came to "
                "rest; raise it or tol",
                ConvergenceWarning,
            )

    @property
    def _width(self):
        return max(1, sum(map(len, self.concepts_)))

    def _by_label(self, X, pool):
        """Pooled distances to the concepts of each label, above its threshold; nothing for constant ones."""
        Q = distances(dense(X), np.concatenate(self.concepts_), np.concatenate(self.scales_))
        ends = np.cumsum([len(points) for points in self.concepts_])
        parts = [pool(part) if part.shape[1] else None for part in np.split(Q, ends[:-1], axis=1)]
        n_rows = next((len(part) for part in parts if part is not None), 0)
        columns = [np.zeros(n_rows) if part is None else part for part in parts]
        return np.column_stack(columns) - self.offset_

    def _score(self, X, offsets):
        if self._only_constants():
            return np.zeros((len(offsets) - 1, len(self.concepts_)))
        return self._by_label(X, lambda Q: self._bag_log_odds(Q, offsets))

    def _instance_scores(self, bags):
        if self._only_constants():
            return np.tile(self.constant_scores_, (bags.n_instances, 1))
        return self._in_blocks(lambda X, offsets: self._by_label(X, self._instance_log_odds), bags)

    def _only_constants(self):
        return not any(map(len, self.concepts_))


def dense(X: Any) -> np.ndarray:
    """Instances as an array: concepts have a scale for every feature, zero or not."""
    if not sparse.issparse(X):
        return X
    n, d = X.shape
    what = f"{n:,} instances with {d:,} features made dense"
    check_memory(3 * 8.0 * n * d, what, "use fewer features, or another method such as MISVM")
    return X.toarray()


def first_scale(init_scale: float | str, n_features: int) -> float:
    """Scale of all features at the start; "auto" makes standardised instances 2 apart on average."""
    return n_features**-0.5 if init_scale == "auto" else float(init_scale)
