"""Prediction kernels of MIMLmix: likelihoods under all labels, and Algorithm 3 with topic feedback."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from bagwise.models.mimlmix.kernels import digamma, dot, exp_digamma, gaussian_log_density, row_posterior
from bagwise.models.mimlmix.topic_kernels import fold_in

_TINY = 1e-290
_SMALL = 1e-100
# Labels with a smaller share of a bag's mass are set aside until the last sweep, which sees all again.
_NEGLIGIBLE = 1e-5
# Labels with fewer expected tokens are not handed to the topics.
_FEW_TOKENS = 1e-3


@njit(parallel=True, cache=True)
def rows_of_counts(
    indptr, indices, data, tokens, s_indptr, s_indices, s_data, prior, totals, kappa, logs, place, P
):
    """Likelihoods of count rows under all labels (or their logarithms), each row up to a factor of its own.

    Eq. 1 with the smoothed eq. 7 is prod_i [kappa b_i (1 + S_yi / (kappa b_i)) / (S_y. + kappa)]^x_i: a part
    that depends on the label alone, and a sparse one.
    """
    L = totals.size
    share = 1.0 / (totals + kappa)
    lengths = np.log(totals + kappa)
    for r in prange(place.size):
        row = P[place[r]]
        if tokens:
            i = indices[indptr[r]]
            for y in range(L):
                row[y] = prior[i] * share[y]
            for j in range(s_indptr[i], s_indptr[i + 1]):
                row[s_indices[j]] += s_data[j] * share[s_indices[j]]
            if logs:
                for y in range(L):
                    row[y] = math.log(row[y])
            continue
        length = 0.0
        for t in range(indptr[r], indptr[r + 1]):
            length += data[t]
        for y in range(L):
            row[y] = -length * lengths[y]
        for t in range(indptr[r], indptr[r + 1]):
            i = indices[t]
            for j in range(s_indptr[i], s_indptr[i + 1]):
                row[s_indices[j]] += data[t] * math.log1p(s_data[j] / prior[i])
        if not logs:
            exp_scaled(row)


@njit(parallel=True, cache=True)
def rows_of_gaussian(X, means, whiten, constants, diagonal, logs, place, P):
    """Densities of continuous rows under all labels, eq. 2, the largest of each row being 1."""
    for r in prange(place.size):
        d, z = np.empty(X.shape[1]), np.empty(X.shape[1])
        row = P[place[r]]
        for y in range(means.shape[0]):
            W = whiten[y % whiten.shape[0]]  # a tied covariance has one entry
            row[y] = gaussian_log_density(X[r], means[y], W, constants[y], diagonal, d, z)
        if not logs:
            exp_scaled(row)


@njit(cache=True)
def exp_scaled(row):
    """Exponentials of a row of logarithms, divided by the largest."""
    best = -np.inf
    for y in range(row.size):
        best = max(best, row[y])
    for y in range(row.size):
        row[y] = math.exp(row[y] - best)


@njit(cache=True)
def _log_strength(gamma, n, sharp, psi):
    """Expected logarithm of theta up to a common term, or ln gamma (CVB0)."""
    for k in range(n):
        psi[k] = digamma(gamma[k]) if sharp else math.log(gamma[k])


@njit(cache=True)
def _prior_strength(gamma, n, sharp, psi, e):
    """exp(E ln theta) up to a common factor, or gamma itself (CVB0)."""
    top = 0.0
    for k in range(n):
        e[k] = exp_digamma(gamma[k]) if sharp else gamma[k]
        top = max(top, e[k])
    if top > _SMALL:
        return
    _log_strength(gamma, n, sharp, psi)  # all gamma are minute: relative to the largest
    best = -np.inf
    for k in range(n):
        best = max(best, psi[k])
    for k in range(n):
        e[k] = math.exp(psi[k] - best)


@njit(cache=True)
def _sweep(B, M, n, weight, g, sharp, e, psi, acc, row):
    """acc_y = sum_m w_m phi_my for the rows of B, an (M, n) block; phi is not kept. ``e`` goes with ``g``."""
    for k in range(n):
        acc[k] = 0.0
    for m in range(M):
        b = B[m * n : (m + 1) * n]
        r = dot(b, e, n)
        if r > _TINY:
            t = weight[m] / r
            for k in range(n):
                acc[k] += b[k] * t
        else:
            _log_strength(g, n, sharp, psi)
            row_posterior(B, m * n, n, psi, row)
            for k in range(n):
                if e[k] > 0.0:
                    acc[k] += weight[m] * row[k] / e[k]
    for k in range(n):
        acc[k] *= e[k]


@njit(cache=True)
def _infer(block, B, M, L, weight, mass, alpha, gamma, max_inner, tol, sharp, kept, g, psi, e, acc, row):
    """E-step of one bag over all labels from a cold start; labels that die out are set aside on the way.

    On return ``e`` and ``g`` are those of the last sweep, which sees all labels.
    """
    n = L
    for k in range(L):
        gamma[k] = alpha[k] + mass / L
        g[k] = gamma[k]
        kept[k] = k
    whole = True
    for sweep in range(max_inner):
        _prior_strength(g, n, sharp, psi, e)
        _sweep(block if whole else B, M, n, weight, g, sharp, e, psi, acc, row)
        change = 0.0
        for k in range(n):
            new = alpha[kept[k]] + acc[k]
            change += abs(new - g[k])
            g[k] = new
        if change < tol * L:
            break
        if sweep % 2 == 1:
            alive = 0
            for k in range(n):
                if acc[k] > _NEGLIGIBLE * mass:
                    alive += 1
            if alive < 0.8 * n:
                source = block if whole else B
                j = 0
                for k in range(n):
                    gamma[kept[k]] = g[k]
                    if acc[k] > _NEGLIGIBLE * mass:
                        e[j] = k  # room to remember columns; refilled in the next sweep
                        j += 1
                for m in range(M):  # in place: targets never lie behind sources
                    for j in range(alive):
                        B[m * alive + j] = source[m * n + int(e[j])]
                for j in range(alive):
                    kept[j] = kept[int(e[j])]
                    g[j] = g[int(e[j])]
                n = alive
                whole = False
    for k in range(n):
        gamma[kept[k]] = g[k]
    for k in range(L):
        g[k] = gamma[k]
    _prior_strength(g, L, sharp, psi, e)
    _sweep(block, M, L, weight, g, sharp, e, psi, acc, row)
    for k in range(L):
        gamma[k] = alpha[k] + acc[k]


@njit(cache=True)
def _mix(state):
    """One step of splitmix64: a uniform number in [0, 1) and the next state."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    z = state
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return state, float(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True)
def _draw(tokens, L, n_draws, state, drawn):
    """Multinomial draws of labels in proportion to ``tokens``; counts into ``drawn``."""
    total = 0.0
    for k in range(L):
        drawn[k] = 0.0
        total += tokens[k]
    for _ in range(n_draws):
        state, u = _mix(state)
        u *= total
        k = 0
        while k < L - 1 and u >= tokens[k]:
            u -= tokens[k]
            k += 1
        drawn[k] += 1.0
    return state


@njit(parallel=True, cache=True)
def predict_bags(
    P, inst_start, weight, copies, eta, xi, beta, alpha_topic, idle_theta, max_rounds, burn_in,
    max_inner, tol, sharp, fold_sharp, fold_sweeps, sampled, seed, gamma_out, theta_out,
):  # fmt: skip
    """Algorithm 3 for many bags; ``P`` becomes phi.

    Parameters
    ----------
    P : float64 array (n_instances, n_labels), in and out
        Likelihoods, each row up to a factor; phi out.
    inst_start : int64 array (n_bags + 1,)
        Where the instances of each bag begin.
    weight, copies : float64 arrays (n_instances,)
        View weight times multiplicity; multiplicity.
    eta, xi : float
        Strength of the topics and floor of the prior.
    beta : float64 array (n_labels, n_topics)
        Topics of labels, transposed.
    alpha_topic : float
        Dirichlet parameter of a bag's topics.
    idle_theta : float64 array (n_topics,)
        Topics of a bag without instances.
    max_rounds : int
        Limit of rounds between labels and topics.
    burn_in : int
        Rounds left out of the averaged topics when sampling.
    max_inner, tol : int, float
        Limit and tolerance (mean change of gamma) of the E-step's sweeps.
    sharp : bool
        Variational Bayes (true) or CVB0 for the labels of instances.
    fold_sharp, fold_sweeps : bool, int
        The same for topics, and the limit of their sweeps.
    sampled, seed : bool, uint64
        Whether label tokens are drawn, as printed, or expected; the seed of the draws.
    gamma_out, theta_out : arrays (n_bags, n_labels), (n_bags, n_topics), out
        Bag scores and topics.
    """
    L, K = beta.shape
    for n in prange(inst_start.size - 1):
        first = inst_start[n]
        M = inst_start[n + 1] - first
        gamma, theta = gamma_out[n], theta_out[n]
        alpha = np.empty(L)
        if M == 0:
            theta[:] = idle_theta
            _topic_prior(beta, theta, eta, xi, alpha)
            gamma[:] = alpha
            continue
        block = P[first : first + M].reshape(M * L)
        w = weight[first : first + M]
        mass, n_tokens = 0.0, 0.0
        for m in range(M):
            mass += w[m]
            n_tokens += copies[first + m]
        B = np.empty(M * L)
        kept = np.empty(L, np.int64)
        g, psi, e, acc, row = np.empty(L), np.empty(L), np.empty(L), np.empty(L), np.empty(L)
        alpha[:] = eta + xi
        _infer(block, B, M, L, w, mass, alpha, gamma, max_inner, tol, sharp, kept, g, psi, e, acc, row)
        if eta > 0.0 and max_rounds > 0:
            own_g, own_e, new = np.empty(K), np.empty(K), np.empty(K)
            mean, drawn, amounts = np.zeros(K), np.empty(L), np.empty(L)
            # seeded by what is in the bag, so that a bag's answer does not depend on its neighbours
            state = np.uint64(seed)
            for k in range(L):
                state = state * np.uint64(31) + np.uint64(acc[k] / mass * 1e6 + 0.5)
            theta[:] = 0.0
            for rounds in range(max_rounds):
                scale = n_tokens / mass
                if sampled:
                    state = _draw(acc, L, int(n_tokens), state, drawn)
                else:
                    for k in range(L):
                        drawn[k] = acc[k] * scale
                j = 0
                for k in range(L):
                    if drawn[k] > _FEW_TOKENS:
                        kept[j] = k
                        amounts[j] = drawn[k]
                        j += 1
                fold_in(kept, amounts, j, beta, alpha_topic, fold_sharp, fold_sweeps, own_g, own_e, new)
                if sampled:
                    used = max(rounds + 1 - burn_in, 1)
                    for k in range(K):
                        mean[k] += (new[k] - mean[k]) / used
                else:
                    mean[:] = new
                change = 0.0
                for k in range(K):
                    change += abs(mean[k] - theta[k])
                    theta[k] = mean[k]
                # while sampling, each round follows its own draw; the average serves the last E-step
                _topic_prior(beta, new, eta, xi, alpha)
                if change < 1e-2 and (rounds >= burn_in or not sampled):
                    break
                if rounds + 1 < max_rounds:
                    _infer(block, B, M, L, w, mass, alpha, gamma, max_inner, tol, sharp,
                           kept, g, psi, e, acc, row)  # fmt: skip
            _topic_prior(beta, theta, eta, xi, alpha)
            _infer(block, B, M, L, w, mass, alpha, gamma, max_inner, tol, sharp,
                   kept, g, psi, e, acc, row)  # fmt: skip
        else:
            theta[:] = idle_theta
        for m in range(M):  # e and g are those of the sweep that gave gamma
            p = m * L
            r = dot(block[p : p + L], e, L)
            if r > _TINY:
                for k in range(L):
                    block[p + k] *= e[k] / r
            else:
                _log_strength(g, L, sharp, psi)
                row_posterior(block, p, L, psi, row)
                for k in range(L):
                    block[p + k] = row[k]


@njit(cache=True)
def _topic_prior(beta, theta, eta, xi, alpha):
    """Prior alpha = eta beta' theta + xi, line 6 of Algorithm 3."""
    for y in range(beta.shape[0]):
        alpha[y] = eta * dot(beta[y], theta, theta.size) + xi
