"""Topics over label sets: latent Dirichlet allocation by zeroth-order collapsed variational Bayes (CVB0)."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from bagwise.models.mimlmix.kernels import dot, exp_digamma

_NEGLIGIBLE = 1e-4  # share of a label set below which a topic is set aside


@njit(parallel=True, cache=True)
def sweep_topics(doc_start, labels, counts, totals, alpha, smoothing, q, fresh):
    """One pass over all label sets with the topic counts of the pass before.

    Parameters
    ----------
    doc_start : int64 array (n_docs + 1,)
        Where label sets begin.
    labels : int64 array (n_tokens,)
        Labels, set after set.
    counts : float64 array (n_labels, n_topics)
        Expected number of tokens of each label in each topic.
    totals : float64 array (n_topics,)
        Column sums of ``counts``.
    alpha, smoothing : float
        Dirichlet parameters of a set's topics and of a topic's labels.
    q : float64 array (n_tokens, n_topics), in and out
        Topic of every token.
    fresh : float64 array (n_pieces, n_labels, n_topics), out
        New counts, one table per fixed piece of sets.
    """
    n_pieces = fresh.shape[0]
    K = q.shape[1]
    n_docs = doc_start.size - 1
    inverse = 1.0 / (totals + smoothing * counts.shape[0])
    for piece in prange(n_pieces):
        table = fresh[piece]
        table[:] = 0.0
        own, ones = np.empty(K), np.ones(K)
        for n in range(piece * n_docs // n_pieces, (piece + 1) * n_docs // n_pieces):
            own[:] = alpha
            for t in range(doc_start[n], doc_start[n + 1]):
                for k in range(K):
                    own[k] += q[t, k]
            for t in range(doc_start[n], doc_start[n + 1]):
                row = q[t]
                c = counts[labels[t]]
                for k in range(K):
                    s = row[k]
                    # 1 / (totals - s + spread) to first order in s / totals: no division in the inner loop
                    rest = inverse[k] * (1.0 + s * inverse[k])
                    row[k] = (own[k] - s) * (c[k] - s + smoothing) * rest
                total = dot(row, ones, K)
                out = table[labels[t]]
                share = 1.0 / total
                for k in range(K):
                    row[k] *= share
                    out[k] += row[k]


@njit(cache=True)
def fold_in(labels, amounts, n, beta, alpha, sharp, max_sweeps, gamma, e, theta):
    """Topic distribution of one label set under fixed topics.

    Parameters
    ----------
    labels, amounts : arrays
        Labels and their (expected) numbers; the first ``n`` entries count.
    beta : float64 array (n_labels, n_topics)
        Probability of each label in each topic, transposed.
    alpha : float
        Dirichlet parameter.
    sharp : bool
        Whether E ln theta is used (variational Bayes) or ln E theta (CVB0).
    max_sweeps : int
        Limit of sweeps; they end when theta moves by less than 1e-3.
    gamma, e : float64 arrays (n_topics,)
        Room to work in.
    theta : float64 array (n_topics,), out
        The distribution.
    """
    K = beta.shape[1]
    total = alpha * K
    for j in range(n):
        total += amounts[j]
    active, left = np.arange(K), np.empty(K, np.int64)
    n_active = K
    near = beta  # rows of the labels at the active topics, once there are fewer
    gamma[:] = total / K
    theta[:] = alpha / total
    for sweep in range(max_sweeps):
        for i in range(n_active):
            e[i] = exp_digamma(gamma[i]) if sharp else gamma[i]
            gamma[i] = 0.0
        for j in range(n):
            row = near[labels[j]] if n_active == K else near[j]
            r = dot(e, row, n_active)
            if r > 0.0:
                t = amounts[j] / r
                for i in range(n_active):
                    gamma[i] += t * row[i]
        change = 0.0
        for i in range(n_active):
            gamma[i] = alpha + gamma[i] * e[i]
            change += abs(gamma[i] / total - theta[active[i]])
            theta[active[i]] = gamma[i] / total
        if change < 1e-3:
            break
        if sweep % 2 == 1:  # topics that hold next to nothing take no further part
            n_left = 0
            for i in range(n_active):
                if gamma[i] - alpha > _NEGLIGIBLE * total:
                    left[n_left] = i
                    n_left += 1
            if n_left < 0.8 * n_active:
                fewer = np.empty((n, n_left))
                for j in range(n):
                    row = near[labels[j]] if n_active == K else near[j]
                    for i in range(n_left):
                        fewer[j, i] = row[left[i]]
                for i in range(n_left):
                    gamma[i] = gamma[left[i]]
                    active[i] = active[left[i]]
                near = fewer
                n_active = n_left


@njit(parallel=True, cache=True)
def fold_in_sets(doc_start, labels, beta, alpha, sharp, max_sweeps, theta):
    """`fold_in` for many label sets, every label counting once."""
    for n in prange(doc_start.size - 1):
        K = beta.shape[1]
        a, b = doc_start[n], doc_start[n + 1]
        gamma, e, out = np.empty(K), np.empty(K), np.empty(K)
        fold_in(labels[a:b], np.ones(b - a), b - a, beta, alpha, sharp, max_sweeps, gamma, e, out)
        theta[n] = out
