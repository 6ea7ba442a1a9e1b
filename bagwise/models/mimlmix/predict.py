"""Prediction with a trained MIMLmix: batches of bags, all views in one block per bag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from bagwise.bags import Bags
from bagwise.models.mimlmix import predict_kernels as kernels
from bagwise.models.mimlmix.em import starts
from bagwise.models.mimlmix.kernels import infer_bags
from bagwise.models.mimlmix.views import as_long, is_token_view, standardised, sum_rows

_SWEEPS = 100  # limit of E-step sweeps from a cold start
_ROOM = 1 << 24  # numbers in the block of likelihoods of one batch (128 MiB)


def predict_views(
    views: Mapping[str, Bags],
    learned: Mapping[str, dict],
    weights: np.ndarray,
    topics: np.ndarray,
    topic_share: np.ndarray,
    settings: dict[str, Any],
    *,
    want_phi: bool = False,
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Algorithm 3 for all bags.

    Returns
    -------
    gamma : ndarray (n_bags, n_components)
        Bag scores.
    theta : ndarray (n_bags, n_topics)
        Topics of the bags.
    phi : dict of str to ndarray (n_instances, n_components)
        Label probabilities of the instances of every view; empty unless asked for.
    """
    n_bags = len(next(iter(views.values())))
    n_components = topics.shape[1]
    gamma, theta = np.empty((n_bags, n_components)), np.empty((n_bags, len(topics)))
    phi = {v: np.empty((bags.n_instances, n_components)) for v, bags in views.items()} if want_phi else {}
    beta = np.ascontiguousarray(topics.T)
    sizes = np.sum([bags.sizes for bags in views.values()], axis=0)
    for a, b in batches(sizes, max(_ROOM // n_components, 1)):
        part = {v: bags[a:b] for v, bags in views.items()}
        block = likelihoods(part, learned, weights, n_components)
        gamma[a:b], theta[a:b] = infer_block(block, beta, topic_share, settings)
        for v, bags in views.items():
            if want_phi:
                phi[v][bags.offsets[a] : bags.offsets[b]] = block.P[block.places[v]]
    return gamma, theta, phi


class Block(NamedTuple):
    """Likelihoods of the instances of some bags under all labels, bag by bag over all views."""

    P: np.ndarray
    inst_start: np.ndarray
    weight: np.ndarray
    copies: np.ndarray
    places: dict[str, np.ndarray]  # row of every instance of a view; equal single words of a bag share one


def infer_block(
    block: Block, beta: np.ndarray, topic_share: np.ndarray, settings: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Gamma and theta' of the bags of a block, whose likelihoods become phi."""
    n_bags = len(block.inst_start) - 1
    gamma, theta = np.empty((n_bags, beta.shape[0])), np.empty((n_bags, beta.shape[1]))
    kernels.predict_bags(
        block.P,
        block.inst_start,
        block.weight,
        block.copies,
        float(settings["eta"]),
        float(settings["xi"]),
        beta,
        float(settings["alpha_topic"]),
        topic_share,
        settings["max_rounds"],
        settings["burn_in"],
        _SWEEPS,
        settings["tol_predict"],
        settings["sharp"],
        settings["fold_sharp"],
        settings["fold_sweeps"],
        settings["sampled"],
        np.uint64(settings["seed"]),
        gamma,
        theta,
    )
    return gamma, theta


def batches(sizes: np.ndarray, room: int) -> list[tuple[int, int]]:
    """Consecutive bags that together have at most ``room`` instances; a larger bag comes alone.

    Examples
    --------
    >>> batches(np.array([3, 3, 9, 1, 1]), 6)
    [(0, 2), (2, 3), (3, 5)]
    """
    result, first, filled = [], 0, 0
    for n, size in enumerate(sizes.tolist()):
        if filled + size > room and n > first:
            result.append((first, n))
            first, filled = n, 0
        filled += size
    return [*result, (first, len(sizes))]


def likelihoods(
    views: Mapping[str, Bags],
    learned: Mapping[str, dict],
    weights: np.ndarray,
    n_components: int,
    *,
    logs: bool = False,
) -> Block:
    """Likelihood of every instance under every label, or its logarithm."""
    rows: dict[str, Any] = {}
    for v, bags in views.items():
        X: Any = bags.X
        bag, copies, member = bags.index, np.ones(bags.n_instances), np.arange(bags.n_instances)
        tokens = False
        if learned[v]["kind"] == "counts":
            X = X if bags.is_sparse else sparse.csr_array(X)
            tokens = is_token_view(X)
            if tokens:
                words = X.indices
                X = sum_rows(X, bags.offsets)
                bag, copies = np.repeat(np.arange(len(bags)), np.diff(X.indptr)), X.data
                keys = bag * np.int64(X.shape[1]) + X.indices
                member = np.searchsorted(keys, bags.index * np.int64(X.shape[1]) + words)
        rows[v] = (X, tokens, bag, copies, member, np.bincount(bag, minlength=len(bags)))
    inst_start = starts(np.sum([r[5] for r in rows.values()], axis=0))
    P = np.empty((inst_start[-1], n_components))
    weight, all_copies = np.empty(len(P)), np.empty(len(P))
    lead = inst_start[:-1].copy()
    places = {}
    for (v, bags), w in zip(views.items(), weights):
        X, tokens, bag, copies, member, sizes = rows[v]
        place = lead[bag] + np.arange(len(bag)) - starts(sizes)[bag]
        lead += sizes
        weight[place], all_copies[place], places[v] = w * copies, copies, place[member]
        _fill(X if learned[v]["kind"] == "counts" else bags, tokens, learned[v], logs, place, P)
    return Block(P, inst_start, weight, all_copies, places)


def _fill(X: Any, tokens: bool, view: dict[str, Any], logs: bool, place: np.ndarray, P: np.ndarray) -> None:
    if view["kind"] == "gaussian":
        diagonal = view["covariance"] == "diag"
        kernels.rows_of_gaussian(
            standardised(X, view), view["mean"], view["whiten"], view["constants"], diagonal, logs, place, P
        )
        return
    indptr = np.arange(X.nnz + 1) if tokens else as_long(X.indptr)
    S = view["S"]
    kernels.rows_of_counts(
        indptr,
        as_long(X.indices),
        X.data.astype(np.float64),
        tokens,
        S["indptr"],
        S["indices"],
        S["data"],
        view["kappa"] * view["background"],
        view["totals"],
        view["kappa"],
        logs,
        place,
        P,
    )


def infer_within(
    views: Mapping[str, Bags], Y: np.ndarray, learned: Mapping[str, dict], weights: np.ndarray, alpha: float
) -> dict[str, np.ndarray]:
    """Label probabilities of instances when the label sets of their bags are known; zeros for empty sets."""
    n_components = Y.shape[1]
    phi = {v: np.zeros((bags.n_instances, n_components)) for v, bags in views.items()}
    sizes = np.sum([bags.sizes for bags in views.values()], axis=0)
    for a, b in batches(sizes, max(_ROOM // n_components, 1)):
        part = {v: bags[a:b] for v, bags in views.items()}
        P, inst_start, weight, _, places = likelihoods(part, learned, weights, n_components, logs=True)
        sets = Y[a:b] > 0
        inside = sets[np.repeat(np.arange(b - a), np.diff(inst_start))]
        best = np.where(inside, P, -np.inf).max(axis=1, initial=-np.inf)
        pairs = np.exp(
            (P - np.where(np.isfinite(best), best, 0.0)[:, None])[inside]
        )  # the order of the kernel
        n_labels = sets.sum(axis=1)
        prior = np.full(n_labels.sum(), float(alpha))
        share = np.repeat(np.diff(inst_start) / np.maximum(n_labels, 1), n_labels)
        infer_bags(
            starts(n_labels),
            inst_start,
            starts(n_labels * np.diff(inst_start)),
            pairs,
            np.zeros(len(P)),
            weight,
            prior,
            prior + share,
            200,
            1e-8,
            np.empty(b - a),
            np.empty(len(P)),
        )
        P[:] = 0.0
        P[inside] = pairs
        for v, bags in views.items():
            phi[v][bags.offsets[a] : bags.offsets[b]] = P[places[v]]
    return phi
