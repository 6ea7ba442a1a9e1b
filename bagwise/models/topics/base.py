"""What topic models of bags share: labels that can be learned, the background, and answers for instances."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.bags import MultiViewBags
from bagwise.base import NO_LABEL, MIMLClassifier
from bagwise.metrics import top_labels


class TopicClassifier(MIMLClassifier):
    """Every instance has one component: a label that some training bag carries, or the background.

    Training bags without labels teach the background, one more component. A subclass writes
    ``_shares(bags, sets)``: for each view the probabilities (n_instances, n_components) of its instances,
    within the sets if these are known.
    """

    components_: np.ndarray
    n_top_: int
    _n_real: int
    _n_labels: int

    def _shares(self, bags: Any, sets: np.ndarray | None) -> dict[str, np.ndarray]:
        raise NotImplementedError

    def _set_up(self, Y: np.ndarray) -> np.ndarray:
        """Sets of components of the training bags; remembers which labels these are."""
        self._n_labels = Y.shape[1]
        real = np.flatnonzero(Y.any(axis=0))
        empty = ~Y.any(axis=1)
        self._n_real = len(real)
        self.n_top_ = max(1, round(float(Y.sum()) / len(Y)))
        if not empty.any():
            self.components_ = real
            return np.ascontiguousarray(Y[:, real], dtype=np.int8)
        self.components_ = np.append(real, self._n_labels)
        return np.column_stack([Y[:, real], empty]).astype(np.int8)

    def _spread(self, values: np.ndarray, fill: float = 0.0) -> np.ndarray:
        """Columns of components brought to the labels; ``fill`` for labels without a training bag."""
        result = np.full((len(values), self._n_labels), fill)
        result[:, self.components_[: self._n_real]] = values[:, : self._n_real]
        return result

    def _signed(self, values: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Scores whose sign says what is predicted: the best ``n_top_`` labels that beat the background.

        ``values`` are above 0 and order the labels; those not predicted become ``-1 / value``.
        """
        chosen = top_labels(values, self.n_top_) & (values > 0)
        if len(self.components_) > self._n_real:
            chosen &= self._spread(shares) > shares[:, -1:]
        return np.where(chosen, values, -1.0 / np.maximum(values, 1e-12))

    def _instance_scores(self, bags: Any) -> Any:
        found = {}
        for view, shares in self._shares(bags, None).items():
            F = self._spread(shares)
            found[view] = F if self._n_labels > 1 else F - 0.5  # against the background alone
        return found if isinstance(bags, MultiViewBags) else next(iter(found.values()))

    def _annotations(self, bags: Any, Y: np.ndarray | None, want_proba: bool) -> tuple[Any, Any]:
        sets = None
        if Y is not None:
            sets = Y[:, self.components_[: self._n_real]] > 0
            if len(self.components_) > self._n_real:
                sets = np.column_stack([sets, np.zeros(len(sets), dtype=bool)])
        named = np.append(self.components_[: self._n_real], NO_LABEL)
        labels, proba = {}, {}
        for view, shares in self._shares(bags, sets).items():
            best = np.minimum(shares.argmax(axis=1), self._n_real)
            labels[view] = np.where(shares.any(axis=1), named[best], NO_LABEL)
            proba[view] = self._spread(shares)
        if not isinstance(bags, MultiViewBags):
            return next(iter(labels.values())), next(iter(proba.values())) if want_proba else None
        return labels, proba if want_proba else None
