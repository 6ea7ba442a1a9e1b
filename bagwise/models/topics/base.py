"""What topic models of bags share: labels that can be learned, the background, and answers for instances."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags import Bags, MultiViewBags
from bagwise.base import NO_LABEL, MIMLClassifier
from bagwise.compute.parts import Held
from bagwise.compute.scaling import apply_scaling, learn_scaling
from bagwise.errors import DataError, quoted
from bagwise.metrics import top_labels
from bagwise.models.mimlmix.fit_kinds import kind_of
from bagwise.models.svm.base import learn_codebook, nearest_word, short_indices


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


# ----------------------------------------------------------------------
# Instances as counts of words: as they are, or the nearest centre of k-means as the only word


_FEWEST, _MOST = 10, 200  # words of a codebook whose size nobody has said
_ROWS = 1 << 14  # instances that get their word at a time


def learn_words(name: str, bags: Bags, kind: str, n_words: int | str, rng: Any) -> dict[str, Any]:
    """What words a view has: ``{"kind": "counts"}``, or the centres of a codebook and the scaling before it.

    Counts, or weights of words, are not negative and mostly zeros; `bagwise.models.MIMLMix` has the rule.

    Examples
    --------
    >>> learn_words("text", Bags(np.eye(20), [0, 20]), "auto", "auto", None)
    {'kind': 'counts', 'n_words': 20}
    """
    values = bags.X.data if bags.is_sparse else bags.X
    negative = bool((values < 0).any())
    if kind == "counts" and negative:
        if bags.is_sparse:
            row = int(np.searchsorted(bags.X.indptr, np.flatnonzero(bags.X.data < 0)[0], side="right")) - 1
        else:
            row = int(np.flatnonzero((bags.X < 0).any(axis=1))[0])
        bag = quoted(bags.bag_ids[np.searchsorted(bags.offsets, row, side="right") - 1])
        raise DataError(
            f"{name} has negative numbers (instance {row}, in bag {bag}), which no counts of words have; "
            "take 'codebook' or 'auto' for words"
        )
    if kind == "auto":
        kind = "counts" if not negative and kind_of(name, Held(bags)) == "counts" else "codebook"
    if kind == "counts":
        return {"kind": kind, "n_words": bags.n_features}
    if bags.n_instances == 0:
        return {"kind": "counts", "n_words": bags.n_features}  # nothing to learn words from
    if n_words == "auto":
        n_words = min(max(bags.n_instances // 10, _FEWEST), _MOST)
    scaling = learn_scaling(bags.X, "standard")
    centres, _ = learn_codebook(short_indices(apply_scaling(bags.X, scaling)), int(n_words), rng)
    return {"kind": kind, "n_words": len(centres), "scaling": scaling, "centres": centres}


def word_counts(X: Any, words: dict[str, Any]) -> Any:
    """Counts of words of every instance, CSR with sorted indices."""
    if words["kind"] == "counts":
        counts = sparse.csr_array(X, dtype=np.float64)
        if (counts.data < 0).any():
            raise DataError("instances have negative numbers, but fit saw counts of words")
        counts.sum_duplicates()
        return counts
    n = X.shape[0]
    found = [
        nearest_word(short_indices(apply_scaling(X[a : a + _ROWS], words["scaling"])), words["centres"])
        for a in range(0, n, _ROWS)
    ]
    indices = np.concatenate([np.empty(0, np.int64), *found]).astype(np.int64)
    return sparse.csr_array((np.ones(n), indices, np.arange(n + 1)), shape=(n, int(words["n_words"])))
