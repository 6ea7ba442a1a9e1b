"""Words of parts of a text, their hashes in compiled loops over code points, and sparse rows of them.

Rows are counts of hashed words, or tf-idf of a vocabulary that was learned.

The words of one part are written one after the other, as UTF-8 with one blank between, so that a run of n
words is a run of bytes and its hash is that of scikit-learn's ``"two words"``. A word is two or more letters,
digits or underscores, as in scikit-learn. Scripts without blanks between words (Chinese, Japanese, Thai and
their neighbours) give every pair of neighbouring characters instead: a whole clause as one word would never
occur twice.

The hashed counts are those of scikit-learn's ``HashingVectorizer`` to the last bit, which takes 2.5 to 4.5
times as long (``benchmarks/own_or_library.py text``) and sees a Chinese clause as one word.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from bagwise.compute.aligned import frozen
from bagwise.compute.compiled import kernel, part
from bagwise.errors import DataError

__all__ = [
    "Tokens",
    "Vocabulary",
    "code_points",
    "hashed",
    "hashes",
    "learn_vocabulary",
    "tf_idf",
    "tokens",
    "word_bounds",
]


OTHER, LETTER, DENSE = 0, 1, 2
# scripts without blanks between words: Thai, Lao, Burmese, Khmer; kana; ideographs and their later planes
_DENSE = [(0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF), (0x31F0, 0x31FF)]
_DENSE += [(0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x20000, 0x3FFFF)]


class Tokens(NamedTuple):
    """Words of some parts: ``letters[starts[k]:ends[k]]`` is word k, which stands in part ``rows[k]``."""

    letters: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    rows: np.ndarray


@lru_cache(maxsize=1)
def _kinds() -> np.ndarray:
    """What each code point is: no part of a word, a letter, or a letter of a script without blanks."""
    table = np.zeros(0x110000, dtype=np.uint8)
    known = (k for k in range(0x110000) if chr(k).isalnum())
    table[np.fromiter(known, dtype=np.int64)] = LETTER
    table[ord("_")] = LETTER
    for low, high in _DENSE:
        # marks above and below letters are no letters by themselves, but parts of Thai and Burmese syllables
        some = table[low : high + 1]
        some[(some == LETTER) | (high < 0x1800)] = DENSE
    return frozen(table)


def code_points(text: str) -> np.ndarray:
    """Characters as numbers."""
    return np.frombuffer(text.encode("utf-32-le", "replace"), dtype="<u4").astype(np.uint32, copy=False)


def tokens(text: str, spans: np.ndarray, *, lowercase: bool = True) -> Tokens:
    """Words of the parts of a text."""
    if lowercase:  # as long as before: the one letter that would grow (İ) becomes a plain i
        text = text.replace("\u0130", "i").lower()
    codes = frozen(code_points(text))
    starts, ends = frozen(spans[:, 0]), frozen(spans[:, 1])
    n_words, n_bytes = _count(codes, _kinds(), starts, ends)
    out = Tokens(np.empty(n_bytes, dtype=np.uint8), *(np.empty(n_words, dtype=np.int64) for _ in range(3)))
    _write(codes, _kinds(), starts, ends, out)
    return out


def word_bounds(text: str) -> np.ndarray:
    """First and last character (exclusive) of every word, of a script without blanks every character."""
    codes = frozen(code_points(text))
    bounds = np.empty((_bounds(codes, _kinds(), np.empty((0, 2), dtype=np.int64)), 2), dtype=np.int64)
    _bounds(codes, _kinds(), bounds)
    return bounds


def hashes(found: Tokens, n_words: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """MurmurHash3 (32 bits, signed) of every run of ``n_words`` words of a part, and its first word."""
    first = np.arange(max(len(found.rows) - n_words + 1, 0))
    if n_words > 1:
        first = first[found.rows[first] == found.rows[first + n_words - 1]]
    starts, ends = found.starts[first], found.ends[first + n_words - 1]
    out = np.empty(len(first), dtype=np.uint32)
    _murmur(frozen(found.letters), frozen(starts), frozen(ends), np.uint32(seed), out)
    return out.view(np.int32), first


@part
def _width(code):
    """Bytes of a code point in UTF-8."""
    if code < 0x80:
        return 1
    if code < 0x800:
        return 2
    return 3 if code < 0x10000 else 4


@part
def _run_end(codes, kinds, at, last):
    """End of the run of characters of the same kind that begins at ``at``."""
    kind = kinds[codes[at]]
    while at < last and kinds[codes[at]] == kind:
        at += 1
    return at


@kernel
def _count(codes, kinds, starts, ends):
    """Number of words of all parts, and of the bytes that they take with a blank after each."""
    n_words, n_bytes = np.int64(0), np.int64(0)
    for row in range(len(starts)):
        at = starts[row]
        while at < ends[row]:
            kind = kinds[codes[at]]
            end = _run_end(codes, kinds, at, ends[row])
            if kind == DENSE:
                n_words += max(end - at - 1, 1)
                for k in range(at, end):
                    inner = k > at and k < end - 1
                    n_bytes += _width(codes[k]) * (2 if inner else 1)
                n_bytes += max(end - at - 1, 1)
            elif kind == LETTER and end - at > 1:
                n_words += 1
                for k in range(at, end):
                    n_bytes += _width(codes[k])
                n_bytes += 1
            at = end
    return n_words, n_bytes


@part
def _put(code, letters, at):
    """Write a code point as UTF-8; where the next one goes."""
    if code < 0x80:
        letters[at] = code
        return at + 1
    n = _width(code)
    for k in range(n - 1, 0, -1):
        letters[at + k] = 0x80 | (code & 0x3F)
        code = code >> 6
    letters[at] = (0xF00 >> n & 0xFF) | code
    return at + n


@kernel
def _write(codes, kinds, starts, ends, out):
    """Fill what `_count` has counted."""
    word, at_byte = np.int64(0), np.int64(0)
    for row in range(len(starts)):
        at = starts[row]
        while at < ends[row]:
            kind = kinds[codes[at]]
            end = _run_end(codes, kinds, at, ends[row])
            if kind == DENSE:
                first, size = at, min(2, end - at)
                n = max(end - at - 1, 1)
            else:
                first, size = at, end - at
                n = 1 if kind == LETTER and size > 1 else 0
            for k in range(n):
                out.starts[word] = at_byte
                for c in range(first + k, first + k + size):
                    at_byte = _put(codes[c], out.letters, at_byte)
                out.ends[word] = at_byte
                out.rows[word] = row
                out.letters[at_byte] = 32
                at_byte += 1
                word += 1
            at = end


@kernel
def _bounds(codes, kinds, out):
    """Fill ``out`` with the bounds of words as far as it reaches; the number of words."""
    n, at, last = np.int64(0), np.int64(0), len(codes)
    while at < last:
        kind = kinds[codes[at]]
        end = at + 1 if kind == DENSE else _run_end(codes, kinds, at, last)
        if kind != OTHER:
            if n < len(out):
                out[n, 0] = at
                out[n, 1] = end
            n += 1
        at = end
    return n


@part
def _rotated(x, r):
    return (x << np.uint32(r)) | (x >> np.uint32(32 - r))


@kernel
def _murmur(letters, starts, ends, seed, out):
    """MurmurHash3_x86_32 of runs of bytes."""
    c1, c2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
    for k in range(len(starts)):
        h, at, end = seed, starts[k], ends[k]
        length = np.uint32(end - at)
        while at + 4 <= end:
            word = np.uint32(letters[at]) | np.uint32(letters[at + 1]) << np.uint32(8)
            word |= np.uint32(letters[at + 2]) << np.uint32(16) | np.uint32(letters[at + 3]) << np.uint32(24)
            h ^= np.uint32(_rotated(np.uint32(word * c1), 15) * c2)
            h = np.uint32(np.uint32(_rotated(h, 13) * np.uint32(5)) + np.uint32(0xE6546B64))
            at += 4
        tail = np.uint32(0)
        for j in range(end - at - 1, -1, -1):
            tail = np.uint32(tail << np.uint32(8)) | np.uint32(letters[at + j])
        if end > at:
            h ^= np.uint32(_rotated(np.uint32(tail * c1), 15) * c2)
        h ^= length
        h = np.uint32((h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B))
        h = np.uint32((h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35))
        out[k] = h ^ (h >> np.uint32(16))


def terms(found: Tokens, n_words: int, first: np.ndarray) -> list[str]:
    """Runs of words as text."""
    letters: Any = found.letters.tobytes()
    return [letters[found.starts[k] : found.ends[k + n_words - 1]].decode("utf-8", "replace") for k in first]


# ---------------------------------------------------------------------- rows of numbers


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
    """Vocabulary and inverse document frequencies from the words and the number of parts of each text.

    A part (sentence, say) counts as a document; see `TextToBags` for the arguments.
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
