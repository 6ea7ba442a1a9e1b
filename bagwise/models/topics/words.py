"""Instances as counts of words: as they are, or the nearest centre of k-means as the only word."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags import Bags
from bagwise.compute.parts import held
from bagwise.compute.scaling import apply_scaling, learn_scaling
from bagwise.errors import DataError, quoted
from bagwise.models._shared.codebook import learn_codebook, nearest_word
from bagwise.models.mimlmix.fit_kinds import kind_of
from bagwise.models.svm.base import short_indices

__all__ = ["learn_words", "n_words_of", "word_counts"]

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
        row = _first_negative_row(bags)
        bag = quoted(bags.bag_ids[np.searchsorted(bags.offsets, row, side="right") - 1])
        raise DataError(
            f"{name} has negative numbers (instance {row}, in bag {bag}), which no counts of words have; "
            "take 'codebook' or 'auto' for words"
        )
    if kind == "auto":
        kind = "counts" if not negative and kind_of(name, held(bags)) == "counts" else "codebook"
    if kind == "counts":
        return {"kind": kind, "n_words": bags.n_features}
    if bags.n_instances == 0:
        return {"kind": "counts", "n_words": bags.n_features}  # nothing to learn words from
    if n_words == "auto":
        n_words = min(max(bags.n_instances // 10, _FEWEST), _MOST)
    scaling = learn_scaling(bags.X, "standard")
    centres, _ = learn_codebook(short_indices(apply_scaling(bags.X, scaling)), int(n_words), rng)
    return {"kind": kind, "n_words": len(centres), "scaling": scaling, "centres": centres}


def _first_negative_row(bags: Bags) -> int:
    if not bags.is_sparse:
        return int(np.flatnonzero((bags.X < 0).any(axis=1))[0])
    return int(np.searchsorted(bags.X.indptr, np.flatnonzero(bags.X.data < 0)[0], side="right")) - 1


def n_words_of(words: dict[str, Any]) -> int:
    """Number of words."""
    return int(words["n_words"])


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
    return sparse.csr_array((np.ones(n), indices, np.arange(n + 1)), shape=(n, n_words_of(words)))
