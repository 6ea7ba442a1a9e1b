"""Prediction with a trained MIMLmix: batches of bags, all views in one block per bag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from bagwise.bags import Bags, runs
from bagwise.compute.aligned import frozen
from bagwise.models.mimlmix import kernels
from bagwise.models.mimlmix.fit_em import starts
from bagwise.models.mimlmix.fit_views import as_long, is_token_view, log_densities, standardised, sum_rows
from bagwise.models.mimlmix.kernels import infer, spread
from bagwise.models.mimlmix.kernels import phi as share_out
from bagwise.models.mimlmix.kernels_topics import draw_tokens, fold_in, label_sets, transposed

_SWEEPS = 100  # limit of E-step sweeps from a cold start
_ROOM = 1 << 24  # numbers in the block of likelihoods of one batch (128 MiB)
_FEW_TOKENS = 1e-3  # labels with fewer expected tokens are not handed to the topics
_STEADY = 1e-2  # change of theta' that ends the rounds


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
    """Algorithm 3 for all bags: gamma (n_bags, n_components), theta (n_bags, n_topics), and phi.

    The latter, asked for or empty, are label probabilities (n_instances, n_components) of every view.
    """
    n_bags = len(next(iter(views.values())))
    n_components = topics.shape[1]
    gamma, theta = np.empty((n_bags, n_components)), np.empty((n_bags, len(topics)))
    phi = {v: np.empty((bags.n_instances, n_components)) for v, bags in views.items()} if want_phi else {}
    beta = transposed(topics)
    sizes = np.sum([bags.sizes for bags in views.values()], axis=0)
    for a, b in runs(starts(sizes), max(_ROOM // n_components, 1)):
        part = {v: bags[a:b] for v, bags in views.items()}
        block = likelihoods(part, learned, weights, n_components)
        gamma[a:b], theta[a:b], psi = infer_block(block, beta, topic_share, settings)
        if want_phi:
            share_out(block.pairs(), block.P.reshape(-1), psi.reshape(-1))
            for v, bags in views.items():
                phi[v][bags.offsets[a] : bags.offsets[b]] = block.P[block.places[v]]
    return gamma, theta, phi


class Block(NamedTuple):
    """Likelihoods of the instances of some bags under all labels, bag by bag over all views."""

    P: np.ndarray
    inst_start: np.ndarray
    weight: np.ndarray
    copies: np.ndarray
    places: dict[str, np.ndarray]  # row of every instance of a view; equal single words of a bag share one

    def pairs(self) -> kernels.Pairs:
        """What the loops need to know: every bag has all labels."""
        n_labels = self.P.shape[1]
        label_start = n_labels * np.arange(len(self.inst_start))
        return kernels.Pairs.of(label_start, self.inst_start, n_labels * self.inst_start, self.weight)

    def per_bag(self, values: np.ndarray) -> np.ndarray:
        """Sums over the instances of every bag."""
        n_bags = len(self.inst_start) - 1
        return np.bincount(np.repeat(np.arange(n_bags), np.diff(self.inst_start)), values, minlength=n_bags)


def infer_block(
    block: Block, beta: np.ndarray, topic_share: np.ndarray, settings: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Algorithm 3 for the bags of a block: gamma, theta' and the E ln theta that gives phi.

    Every round works on the bags whose topics still move. A bag's answer does not depend on its neighbours.
    """
    eta, xi = float(settings["eta"]), float(settings["xi"])
    bounds = kernels.Bounds(_SWEEPS, settings["tol_predict"], settings["sharp"], True)
    pairs, P = block.pairs(), block.P.reshape(-1)
    mass, n_tokens = block.per_bag(block.weight), block.per_bag(block.copies)
    alpha = np.full((len(mass), beta.shape[0]), eta + xi)
    gamma, psi = np.empty_like(alpha), np.zeros_like(alpha)

    def e_step(bags: np.ndarray) -> None:
        """From a cold start, under the present alpha."""
        gamma[bags] = alpha[bags] + (mass[bags] / alpha.shape[1])[:, None]
        some = pairs._replace(which=frozen(bags))
        psi[bags] = infer(some, P, alpha.reshape(-1), gamma.reshape(-1), bounds).reshape(psi.shape)[bags]

    theta = np.repeat(topic_share[None], len(mass), axis=0)
    filled, empty = np.flatnonzero(mass > 0), np.flatnonzero(mass <= 0)  # bags with instances, and without
    if eta > 0.0:
        alpha[empty] = eta * (topic_share @ beta.T) + xi
    if eta > 0.0 and settings["max_rounds"] > 0:
        e_step(filled)
        theta[filled] = _rounds(
            filled, alpha, gamma, n_tokens / np.maximum(mass, 1e-300), beta, settings, e_step
        )
        alpha[filled] = eta * (theta[filled] @ beta.T) + xi
    e_step(np.arange(len(mass)))
    return gamma, theta, psi


def _rounds(
    active: np.ndarray,
    alpha: np.ndarray,
    gamma: np.ndarray,
    scale: np.ndarray,
    beta: np.ndarray,
    settings: dict[str, Any],
    e_step: Any,
) -> np.ndarray:
    """Labels and topics of bags in turn until the topics settle: theta' of the bags ``active``.

    ``scale`` turns the weighted instances of labels into numbers of tokens.
    """
    sampled, eta, xi = settings["sampled"], float(settings["eta"]), float(settings["xi"])
    theta = np.zeros((len(alpha), beta.shape[1]))
    everyone = active
    state = _seeds(gamma - alpha, settings["seed"]) if sampled else np.empty(0, np.uint64)
    for done in range(settings["max_rounds"]):
        tokens = (gamma[active] - alpha[active]) * scale[active, None]
        if sampled:
            tokens = _draws(tokens, state, active)
        bag, label = np.nonzero(tokens > _FEW_TOKENS)
        sets = label_sets(bag, label, tokens[bag, label], len(active))
        new = fold_in(sets, beta, settings["alpha_topic"], settings["fold_sharp"], settings["fold_sweeps"])
        mean = new
        if sampled:  # the average of all rounds but the first ones
            mean = theta[active] + (new - theta[active]) / max(done + 1 - settings["burn_in"], 1)
        change = np.abs(mean - theta[active]).sum(axis=1)
        theta[active] = mean
        if sampled and done < settings["burn_in"]:
            moving = np.ones(len(active), dtype=bool)
        else:
            moving = change >= _STEADY
        if done + 1 == settings["max_rounds"] or not moving.any():
            break
        active, new = active[moving], new[moving]
        # while sampling, each round follows its own draw; the average serves the last E-step
        alpha[active] = eta * (new @ beta.T) + xi
        e_step(active)
    return theta[everyone]


def _seeds(expected: np.ndarray, seed: int) -> np.ndarray:
    """A seed per bag, from what is in the bag, so that its answer does not depend on its neighbours."""
    total = np.maximum(expected.sum(axis=1, keepdims=True), 1e-300)
    shares = (expected / total * 1e6 + 0.5).astype(np.uint64)
    state = np.full(len(shares), seed, dtype=np.uint64)
    for column in shares.T:
        state = state * np.uint64(31) + column
    return state


def _draws(tokens: np.ndarray, state: np.ndarray, active: np.ndarray) -> np.ndarray:
    """As many label tokens as are expected, drawn; the random states of the bags move on."""
    drawn, own = np.empty_like(tokens), state[active]
    n_draws = np.round(tokens.sum(axis=1)).astype(np.int64)
    pairs = int(n_draws.sum()) * tokens.shape[1]
    spread(draw_tokens, len(tokens), frozen(tokens), frozen(n_draws), own, drawn, pairs=pairs)
    state[active] = own
    return drawn


def likelihoods(
    views: Mapping[str, Bags],
    learned: Mapping[str, dict],
    weights: np.ndarray,
    n_components: int,
    *,
    logs: bool = False,
) -> Block:
    """Likelihood of every instance under every label, each row up to a factor; or its logarithm."""
    rows = {v: _Rows.of(bags, learned[v]["kind"]) for v, bags in views.items()}
    inst_start = starts(np.sum([r.sizes for r in rows.values()], axis=0))
    P = np.empty((inst_start[-1], n_components))
    weight, copies = np.empty(len(P)), np.empty(len(P))
    lead = inst_start[:-1].copy()
    places, in_logs = {}, np.ones(len(P), dtype=bool)
    for (v, own), w in zip(rows.items(), weights):
        place = lead[own.bag] + np.arange(len(own.bag)) - starts(own.sizes)[own.bag]
        lead += own.sizes
        weight[place], copies[place] = w * own.copies, own.copies * (w > 0)  # no weight, no label tokens
        places[v] = place[own.member]
        in_logs[place] = not own.tokens
        if learned[v]["kind"] == "gaussian":
            P[place] = log_densities(standardised(views[v], learned[v]), learned[v])
        else:
            _fill_counts(own, learned[v], place, P)
    if logs:
        np.log(P, out=P, where=~in_logs[:, None])
    elif in_logs.all():
        _from_logs(P)
    elif in_logs.any():
        P[in_logs] = _from_logs(P[in_logs])
    return Block(P, inst_start, weight, copies, places)


class _Rows(NamedTuple):
    """Rows of one view: its instances, or the different words of each bag where instances are words."""

    X: Any
    tokens: bool
    bag: np.ndarray
    copies: np.ndarray  # instances that a row stands for
    member: np.ndarray  # row of every instance
    sizes: np.ndarray  # rows of every bag

    @classmethod
    def of(cls, bags: Bags, kind: str) -> _Rows:
        plain = (bags.index, np.ones(bags.n_instances), np.arange(bags.n_instances), bags.sizes)
        if kind == "gaussian":
            return cls(None, False, *plain)
        X = bags.X if bags.is_sparse else sparse.csr_array(bags.X)
        if not is_token_view(X):
            return cls(X, False, *plain)
        words = sum_rows(X, bags.offsets)
        sizes = np.diff(words.indptr)
        bag = np.repeat(np.arange(len(bags)), sizes)
        width = np.int64(X.shape[1])
        member = np.searchsorted(bag * width + words.indices, bags.index * width + X.indices)
        return cls(words, True, bag, words.data, member, sizes)


def _fill_counts(rows: _Rows, view: dict[str, Any], place: np.ndarray, P: np.ndarray) -> None:
    X, S = rows.X, view["S"]
    indptr = np.arange(X.nnz + 1) if rows.tokens else as_long(X.indptr)
    data = (as_long(indptr), as_long(X.indices), X.data.astype(np.float64))
    statistics = (as_long(S["indptr"]), as_long(S["indices"]), S["data"])
    totals = view["totals"] + view["kappa"]
    spread(
        kernels.rows_of_counts,
        len(place),
        kernels.Csr(*(frozen(a) for a in data)),
        kernels.Csr(*(frozen(a) for a in statistics)),
        frozen(view["kappa"] * view["background"]),
        frozen(1.0 / totals if rows.tokens else np.log(totals)),
        rows.tokens,
        frozen(place),
        P,
        pairs=P.shape[1] * len(place),
    )


def _from_logs(P: np.ndarray) -> np.ndarray:
    """Exponentials of rows of logarithms, each divided by the largest; in place."""
    if P.size:
        P -= P.max(axis=1, keepdims=True)
    return np.exp(P, out=P)


def infer_within(
    views: Mapping[str, Bags], Y: np.ndarray, learned: Mapping[str, dict], weights: np.ndarray, alpha: float
) -> dict[str, np.ndarray]:
    """Label probabilities of instances when the label sets of their bags are known; zeros for empty sets."""
    n_components = Y.shape[1]
    phi = {v: np.zeros((bags.n_instances, n_components)) for v, bags in views.items()}
    sizes = np.sum([bags.sizes for bags in views.values()], axis=0)
    for a, b in runs(starts(sizes), max(_ROOM // n_components, 1)):
        part = {v: bags[a:b] for v, bags in views.items()}
        P, inst_start, weight, _, places = likelihoods(part, learned, weights, n_components, logs=True)
        sets, n_rows = Y[a:b] > 0, np.diff(inst_start)
        inside = np.repeat(sets, n_rows, axis=0)
        best = np.where(inside, P, -np.inf).max(axis=1, initial=-np.inf)
        known = np.exp((P - np.where(np.isfinite(best), best, 0.0)[:, None])[inside])  # order of the loops
        n_labels = sets.sum(axis=1)
        pairs = kernels.Pairs.of(starts(n_labels), inst_start, starts(n_labels * n_rows), weight)
        prior = np.full(n_labels.sum(), float(alpha))
        gamma = prior + np.repeat(n_rows / np.maximum(n_labels, 1), n_labels)
        psi = infer(pairs, known, prior, gamma, kernels.Bounds(200, 1e-8, True, False))
        share_out(pairs, known, psi)
        P[:] = 0.0
        P[inside] = known
        for v, bags in views.items():
            phi[v][bags.offsets[a] : bags.offsets[b]] = P[places[v]]
    return phi


def distribution_of(learned: dict[str, Any], component: int) -> dict[str, np.ndarray]:
    """Distribution of one component in the units of the data; constant features have no variance."""
    if learned["kind"] == "counts":
        parts = learned["S"]
        words = np.repeat(np.arange(parts["shape"][0]), np.diff(parts["indptr"]))
        own = parts["indices"] == component
        S = np.bincount(words[own], parts["data"][own], minlength=parts["shape"][0])
        kappa = learned["kappa"]
        return {"words": (S + kappa * learned["background"]) / (learned["totals"][component] + kappa)}
    kept = learned["scale"] > 0
    W = learned["whiten"][component % len(learned["whiten"])]
    if learned["covariance"] == "diag":
        covariance = np.diag(1.0 / W[0] ** 2)
    else:  # stored: the transposed inverse of the Cholesky factor
        factor = np.linalg.inv(W.T)
        covariance = factor @ factor.T
    mean, whole = learned["location"].copy(), np.zeros((len(kept), len(kept)))
    mean[kept] += learned["scale"][kept] * learned["mean"][component]
    whole[np.ix_(kept, kept)] = covariance
    return {"mean": mean, "covariance": whole * np.outer(learned["scale"], learned["scale"])}
