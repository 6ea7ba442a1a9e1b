"""Compiled loops over words of count views: where they stand, their probabilities, expected counts."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bagwise.compute.compiled import kernel


class CountRows(NamedTuple):
    """Rows of a view of counts, and where each begins among the pairs and among their places."""

    indptr: np.ndarray
    data: np.ndarray
    multiplicity: np.ndarray
    n_labels: np.ndarray  # of the row's bag
    pair: np.ndarray
    place: np.ndarray


@kernel
def find_places(first, last, rows, indices, row_label, labels, word_start, word_labels, places):
    """Where in the (word, label) statistics each (word of a row, label of its bag) lies.

    ``row_label`` is where the labels of the row's bag begin; ``word_labels[word_start[i]:]`` are the labels
    that occur with word i, rising.
    """
    for r in range(first, last):
        p = rows.place[r]
        for t in range(rows.indptr[r], rows.indptr[r + 1]):
            lo = word_start[indices[t]]
            for k in range(rows.n_labels[r]):  # labels of a bag rise: each search starts where the last ended
                hi = word_start[indices[t] + 1]
                wanted = labels[row_label[r] + k]
                while lo < hi:
                    mid = (lo + hi) >> 1
                    if word_labels[mid] < wanted:
                        lo = mid + 1
                    else:
                        hi = mid
                places[p] = lo
                p += 1


@kernel
def fill_counts(first, last, rows, places, table, tokens, P):
    """Log-likelihoods of rows of counts, eq. 1, from log probabilities; of single words, likelihoods."""
    for r in range(first, last):
        n, p, q = rows.n_labels[r], rows.pair[r], rows.place[r]
        if tokens:
            for k in range(n):
                P[p + k] = table[places[q + k]]
            continue
        for k in range(n):
            P[p + k] = 0.0
        for t in range(rows.indptr[r], rows.indptr[r + 1]):
            for k in range(n):
                P[p + k] += rows.data[t] * table[places[q + k]]
            q += n


@kernel
def add_counts(first, last, rows, places, P, S):
    """S_vyi = sum phi x_i, a table per fixed piece of rows; the caller adds the pieces."""
    n_rows, n_pieces = rows.pair.size, S.shape[0]
    for piece in range(first, last):
        for r in range(piece * n_rows // n_pieces, (piece + 1) * n_rows // n_pieces):
            n, p, q = rows.n_labels[r], rows.pair[r], rows.place[r]
            for t in range(rows.indptr[r], rows.indptr[r + 1]):
                x = rows.data[t] * rows.multiplicity[r]
                for k in range(n):
                    S[piece, places[q + k]] += x * P[p + k]
                q += n


class Csr(NamedTuple):
    """The arrays of a CSR matrix."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray


@kernel
def rows_of_counts(first, last, X, S, prior, totals, tokens, place, P):
    """Log-likelihoods of rows of counts under all labels, up to a term of the row; of words, likelihoods.

    Eq. 1 with the smoothed eq. 7 is prod_i [kappa b_i (1 + S_yi / (kappa b_i)) / (S_y. + kappa)]^x_i: a part
    that depends on the label alone, and a sparse one.

    Parameters
    ----------
    X, S : Csr
        The rows, and the statistics (words, labels).
    prior : float64 array (n_words,)
        kappa b_i.
    totals : float64 array (n_labels,)
        ln(S_y. + kappa); its reciprocal without logarithm for single words.
    tokens : bool
        Whether rows are single words.
    place : int64 array (n_rows,)
        Rows of ``P`` to fill.
    P : float64 array (n, n_labels), out
        The likelihoods.
    """
    for r in range(first, last):
        row, length = P[place[r]], 0.0
        for t in range(X.indptr[r], X.indptr[r + 1]):
            length += X.data[t]
        if tokens:
            length = -prior[X.indices[X.indptr[r]]]
        for y in range(totals.size):
            row[y] = -length * totals[y]
        for t in range(X.indptr[r], X.indptr[r + 1]):
            i = X.indices[t]
            for j in range(S.indptr[i], S.indptr[i + 1]):
                y = S.indices[j]
                if tokens:
                    row[y] += S.data[j] * totals[y]
                else:
                    row[y] += X.data[t] * math.log1p(S.data[j] / prior[i])
