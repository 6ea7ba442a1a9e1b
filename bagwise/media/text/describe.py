"""Parts of a text as sparse rows: counts of hashed words, or tf-idf of a vocabulary that was learned."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy import sparse

from bagwise.errors import DataError
from bagwise.media.text.tokens import Tokens, hashes, terms

__all__ = ["Vocabulary", "hashed", "learn_vocabulary", "tf_idf"]


def hashed(
    found: Tokens,
    n_rows: int,
    n_features: int,
    *,
    n_grams: tuple[int, int] = (1, 1),
    alternate_sign: bool = True,
    sublinear: bool = False,
) -> sparse.csr_array:
    """Counts of words in ``n_features`` columns chosen by their hash, rows scaled to length one.

    The numbers are those of scikit-learn's ``HashingVectorizer`` (which has no ``sublinear``: here a sum c
    becomes sign(c) (1 + log |c|) before scaling).
    """
    columns, rows, signs = [], [], []
    for n in range(n_grams[0], n_grams[1] + 1):
        h, first = hashes(found, n, 0)
        wide = np.abs(h.astype(np.int64))
        columns.append((wide % n_features).astype(np.int32))
        rows.append(found.rows[first])
        signs.append(np.where(h >= 0, 1.0, -1.0).astype(np.float32))
    data = np.concatenate(signs)
    X = _rows(data if alternate_sign else np.abs(data), np.concatenate(columns), rows, (n_rows, n_features))
    X.eliminate_zeros()  # words of opposite sign in one column
    return _scaled(X, sublinear)


class Vocabulary(NamedTuple):
    """Terms in order, the weight of each, and their keys (sorted, with the number of the term of each)."""

    terms: np.ndarray
    idf: np.ndarray
    keys: np.ndarray
    term_of_key: np.ndarray

    @classmethod
    def of(cls, terms: np.ndarray, idf: np.ndarray) -> Vocabulary:
        """A vocabulary from its terms and weights alone, as a file keeps it."""
        if not len(terms) or np.shape(idf) != (len(terms),):
            raise DataError(f"a vocabulary of {len(terms)} terms has {np.size(idf)} weights")
        words = [str(term).encode("utf-8", "replace") for term in terms]
        ends = np.cumsum([len(word) for word in words])
        starts = np.concatenate([[0], ends[:-1]])
        letters = np.frombuffer(b"".join(words), dtype=np.uint8)
        keys, _ = _keys(Tokens(letters, starts, ends, np.zeros(len(words), dtype=np.int64)), 1)
        by_key = np.argsort(keys)
        return cls(terms, np.asarray(idf, dtype=np.float32), keys[by_key], by_key)


def learn_vocabulary(
    documents: Iterable[tuple[Tokens, int]],
    *,
    n_grams: tuple[int, int] = (1, 1),
    min_df: int = 1,
    max_df: float = 1.0,
    max_terms: int | None = None,
) -> Vocabulary:
    """Vocabulary and inverse document frequencies, a part (sentence, say) counting as a document.

    Parameters
    ----------
    documents : iterable of (Tokens, number of parts)
        Words of the training texts.
    n_grams : pair of int
        Shortest and longest run of words that is a term.
    min_df : int
        Terms in fewer parts are left out.
    max_df : float
        Terms in more than this share of all parts are left out.
    max_terms : int, optional
        Only so many of the most frequent terms are kept.
    """
    names: dict[int, str] = {}
    keys, in_parts, counts = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    n_parts = 0
    for found, n_rows in documents:
        n_parts += n_rows
        for n in range(n_grams[0], n_grams[1] + 1):
            key, first = _keys(found, n)
            unique, where, inverse, count = np.unique(
                key, return_index=True, return_inverse=True, return_counts=True
            )
            pairs = np.unique(found.rows[first] * max(len(unique), 1) + inverse.ravel())
            parts = np.bincount(pairs % max(len(unique), 1), minlength=len(unique))
            new = [k for k, name in enumerate(unique.tolist()) if name not in names]
            names.update(zip(unique[new].tolist(), terms(found, n, first[where[new]])))
            keys, (in_parts, counts) = _merged(keys, (in_parts, counts), unique, (parts, count))
    keep = (in_parts >= min_df) & (in_parts <= max_df * n_parts)
    keys, in_parts, counts = keys[keep], in_parts[keep], counts[keep]
    words = np.array([names[key] for key in keys.tolist()], dtype=object)
    if max_terms is not None and len(words) > max_terms:
        best = np.lexsort((words, -counts))[:max_terms]
        words, in_parts = words[best], in_parts[best]
    if not len(words):
        raise DataError(
            f"no term is left of {n_parts} parts of text with min_df={min_df}, max_df={max_df:g}; "
            "are there words of two letters or more?"
        )
    order = np.argsort(words)
    idf = np.log((1 + n_parts) / (1 + in_parts[order])) + 1  # as scikit-learn's smooth_idf
    return Vocabulary.of(words[order], idf)


def tf_idf(
    found: Tokens,
    n_rows: int,
    vocabulary: Vocabulary,
    *,
    n_grams: tuple[int, int] = (1, 1),
    sublinear: bool = False,
) -> sparse.csr_array:
    """Counts times inverse document frequency, rows scaled to length one, as scikit-learn does it."""
    columns, rows = [], []
    for n in range(n_grams[0], n_grams[1] + 1):
        key, first = _keys(found, n)
        at = np.minimum(np.searchsorted(vocabulary.keys, key), len(vocabulary.keys) - 1)
        known = vocabulary.keys[at] == key
        columns.append(vocabulary.term_of_key[at[known]].astype(np.int32))
        rows.append(found.rows[first[known]])
    column = np.concatenate(columns)
    shape = (n_rows, len(vocabulary.terms))
    return _scaled(_rows(np.ones(len(column), np.float32), column, rows, shape), sublinear, vocabulary.idf)


def _keys(found: Tokens, n: int) -> tuple[np.ndarray, np.ndarray]:
    """64 bits for each run of n words: two hashes, so that no two terms of a vocabulary meet."""
    low, first = hashes(found, n, 0)
    high, _ = hashes(found, n, 0x5BD1E995)
    return low.view(np.uint32).astype(np.int64) | (high.astype(np.int64) << 32), first


def _merged(keys, values, more, more_values):
    """Sums of the values of equal keys."""
    together, inverse = np.unique(np.concatenate([keys, more]), return_inverse=True)
    sums = []
    for one, other in zip(values, more_values):
        total = np.zeros(len(together), dtype=np.int64)
        total[inverse[: len(keys)]] += one
        total[inverse[len(keys) :]] += other
        sums.append(total)
    return together, tuple(sums)


def _rows(data, columns, rows, shape) -> sparse.csr_array:
    """CSR with equal columns of a row added up."""
    if len(rows) > 1:  # runs of one, two, ... words: bring those of a part together
        row = np.concatenate(rows)
        order = np.argsort(row, kind="stable")
        row, data, columns = row[order], data[order], columns[order]
    else:
        row = rows[0]
    ends = np.cumsum(np.bincount(row, minlength=shape[0]))
    X = sparse.csr_array((data, columns, np.concatenate([[0], ends]).astype(np.int32)), shape=shape)
    X.sum_duplicates()
    return X


def _scaled(X: sparse.csr_array, sublinear: bool, weights: np.ndarray | None = None) -> sparse.csr_array:
    if sublinear:
        X.data = np.sign(X.data) * (1 + np.log(np.abs(X.data)))
    if weights is not None:
        X.data *= weights[X.indices]
    sizes = np.diff(X.indptr)
    row = np.repeat(np.arange(X.shape[0]), sizes)
    squares = np.bincount(row, weights=X.data.astype(np.float64) ** 2, minlength=X.shape[0])
    norms = np.sqrt(squares)
    norms[norms == 0] = 1
    X.data = (X.data / norms[row]).astype(np.float32)
    return X
