"""Training kernels of MIMLmix: variational inference within label sets, likelihoods and statistics.

The pairs (instance, label of its bag) of all views lie in one flat array ``P``. Bag ``n`` owns the block
``P[pair_start[n]:]`` of shape (instances of the bag in all views, labels of the bag), C order. Every bag,
label or fixed piece of rows is worked on by one thread: results do not depend on the number of threads.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

_LOG_2PI = math.log(2.0 * math.pi)
_TINY = 1e-290


@njit(cache=True)
def digamma(x):
    """Derivative of the logarithm of the gamma function for x > 0, to about 1e-12."""
    shift = 0.0
    while x < 6.0:
        shift += 1.0 / x
        x += 1.0
    f = 1.0 / (x * x)
    tail = f * (1 / 12 - f * (1 / 120 - f * (1 / 252 - f * (1 / 240 - f * (1 / 132 - f * (691 / 32760))))))
    return math.log(x) - 0.5 / x - tail - shift


@njit(cache=True)
def exp_digamma(x):
    """exp(digamma(x)) for x > 0, to about 1e-9 of itself; 0 where that underflows.

    Without a logarithm: exp(psi(y + 1/2)) = y + 1/(24 y) - 37/(5760 y^3) + ..., and six steps of psi(x) =
    psi(x + 1) - 1/x as one fraction.
    """
    if x < 6.0:
        t = x * (x + 5.0)
        steps = (2.0 * x + 5.0) * ((3.0 * t + 20.0) * t + 24.0) / (t * (t + 4.0) * (t + 6.0))
        y = x + 5.5
        factor = math.exp(-steps)
    else:
        y = x - 0.5
        factor = 1.0
    v = 1.0 / y
    f = v * v
    return (y + v * (1 / 24 - f * (37 / 5760 - f * (10313 / 2903040 - f * (5509121 / 1393459200))))) * factor


# Terms may be added in any order that the compiler fixes, which lets it use vector registers; nothing is
# assumed about infinite or undefined numbers.
@njit(cache=True, fastmath={"reassoc", "contract"})
def dot(a, b, n):
    """Inner product of the first n entries."""
    total = 0.0
    for k in range(n):
        total += a[k] * b[k]
    return total


@njit(cache=True)
def row_posterior(P, start, k_labels, psi, out):
    """Posterior of one instance from scaled likelihoods and expected log priors; the rare way, in logarithms.

    Only called where the plain product underflows for every label of the bag.
    """
    best = -np.inf
    for k in range(k_labels):
        out[k] = math.log(max(P[start + k], _TINY)) + psi[k]
        best = max(best, out[k])
    total = 0.0
    for k in range(k_labels):
        out[k] = math.exp(out[k] - best)
        total += out[k]
    for k in range(k_labels):
        out[k] /= total
    return best + math.log(total)


@njit(parallel=True, cache=True)
def infer_bags(
    label_start, inst_start, pair_start, P, shift, weight, alpha, gamma, max_inner, tol, bound, log_r
):
    """E-step of all bags: eqs. 5-6 to convergence; ``P`` becomes phi, ``gamma`` is updated in place.

    Parameters
    ----------
    label_start, inst_start, pair_start : int64 arrays (n_bags + 1,)
        Where each bag's labels, instances and pairs begin.
    P : float64 array (n_pairs,), in and out
        Scaled likelihoods in; phi out.
    shift : float64 array (n_instances,)
        Logarithm of the factor by which each row of ``P`` was divided.
    weight : float64 array (n_instances,)
        View weight times multiplicity.
    alpha, gamma : float64 arrays (n_bag_labels,)
        Prior; parameters of q(theta), warm start in and result out.
    max_inner : int
        Limit of sweeps per bag.
    tol : float
        Mean absolute change of gamma over the bag's labels that ends the sweeps.
    bound : float64 array (n_bags,), out
        Evidence lower bound of each bag, right after the update of gamma.
    log_r : float64 array (n_instances,), out
        sum_y phi (E ln theta_y + ln p - ln phi) of every instance: its part of dL/dw_v.
    """
    for n in prange(label_start.size - 1):
        a = label_start[n]
        L = label_start[n + 1] - a
        first, last = inst_start[n], inst_start[n + 1]
        bound[n] = 0.0
        if L == 0 or first == last:
            for k in range(L):
                gamma[a + k] = alpha[a + k]
            continue
        psi, e, acc, row = np.empty(L), np.empty(L), np.empty(L), np.empty(L)
        top = 0.0
        for _ in range(max_inner):
            top = -np.inf
            for k in range(L):
                psi[k] = digamma(gamma[a + k])
                top = max(top, psi[k])
            for k in range(L):
                e[k] = math.exp(psi[k] - top)
                acc[k] = 0.0
            p = pair_start[n]
            for m in range(first, last):
                r = 0.0
                for k in range(L):
                    r += P[p + k] * e[k]
                if r > _TINY:
                    t = weight[m] / r
                    for k in range(L):
                        acc[k] += P[p + k] * e[k] * t
                else:
                    row_posterior(P, p, L, psi, row)
                    for k in range(L):
                        acc[k] += weight[m] * row[k]
                p += L
            change = 0.0
            for k in range(L):
                new = alpha[a + k] + acc[k]
                change += abs(new - gamma[a + k])
                gamma[a + k] = new
            if change < tol * L:
                break
        # phi of the sweep that gave gamma, and the bound in the form that needs one logarithm per instance
        total_a, total_g, value = 0.0, 0.0, 0.0
        for k in range(L):
            total_a += alpha[a + k]
            total_g += gamma[a + k]
            value += math.lgamma(gamma[a + k]) - math.lgamma(alpha[a + k])
            value -= (gamma[a + k] - alpha[a + k]) * psi[k]
        value += math.lgamma(total_a) - math.lgamma(total_g)
        psi_total = digamma(total_g)
        p = pair_start[n]
        for m in range(first, last):
            r = 0.0
            for k in range(L):
                r += P[p + k] * e[k]
            if r > _TINY:
                for k in range(L):
                    P[p + k] *= e[k] / r
                r = math.log(r) + top
            else:
                r = row_posterior(P, p, L, psi, row)
                for k in range(L):
                    P[p + k] = row[k]
            value += weight[m] * (r + shift[m])
            log_r[m] = r + shift[m] - psi_total
            p += L
        bound[n] = value


# ---------------------------------------------------------------------- count views


@njit(parallel=True, cache=True)
def find_places(indptr, indices, row_bag, row_place, label_start, labels, pat_indptr, pat_indices, place):
    """Where in the (word, label) statistics each (word of a row, label of its bag) lies."""
    for r in prange(row_bag.size):
        a = label_start[row_bag[r]]
        L = label_start[row_bag[r] + 1] - a
        p = row_place[r]
        for t in range(indptr[r], indptr[r + 1]):
            lo = pat_indptr[indices[t]]
            end = pat_indptr[indices[t] + 1]
            for k in range(L):  # labels of a bag rise, so each search starts where the last one ended
                hi = end
                wanted = labels[a + k]
                while lo < hi:
                    mid = (lo + hi) >> 1
                    if pat_indices[mid] < wanted:
                        lo = mid + 1
                    else:
                        hi = mid
                place[p] = lo
                p += 1


@njit(parallel=True, cache=True)
def count_tables(S, prior, columns, totals, kappa, log_wanted, table, gain):
    """M-step of a count view, eq. 7 smoothed, at the entries that training visits.

    ``prior`` is kappa b_i of each entry. ``gain`` receives, per piece, sum b_i ln(1 + S / (kappa b_i)), the
    part of the prior's logarithm that differs from a label without data.
    """
    n_pieces = gain.size
    for piece in prange(n_pieces):
        value = 0.0
        for j in range(piece * S.size // n_pieces, (piece + 1) * S.size // n_pieces):
            value += prior[j] * math.log1p(S[j] / prior[j])
            p = (S[j] + prior[j]) / (totals[columns[j]] + kappa)
            table[j] = math.log(p) if log_wanted else p
        gain[piece] = value / kappa


@njit(parallel=True, cache=True)
def fill_tokens(row_bag, row_pair, row_place, label_start, place, table, P):
    """Likelihoods of instances that are single words: one look-up per pair."""
    for r in prange(row_bag.size):
        L = label_start[row_bag[r] + 1] - label_start[row_bag[r]]
        p, q = row_pair[r], row_place[r]
        for k in range(L):
            P[p + k] = table[place[q + k]]


@njit(parallel=True, cache=True)
def fill_counts(
    indptr, data, row_bag, row_pair, row_inst, row_place, label_start, place, log_table, coefficient, P, shift
):
    """Likelihoods of instances that are vectors of counts, eq. 1, rows scaled to a largest value of 1."""
    for r in prange(row_bag.size):
        L = label_start[row_bag[r] + 1] - label_start[row_bag[r]]
        p, q = row_pair[r], row_place[r]
        for k in range(L):
            P[p + k] = 0.0
        for t in range(indptr[r], indptr[r + 1]):
            for k in range(L):
                P[p + k] += data[t] * log_table[place[q + k]]
            q += L
        best = -np.inf
        for k in range(L):
            best = max(best, P[p + k])
        for k in range(L):
            P[p + k] = math.exp(P[p + k] - best)
        shift[row_inst[r]] = best + coefficient[r]


@njit(parallel=True, cache=True)
def add_counts(indptr, data, multiplicity, row_bag, row_pair, row_place, label_start, place, P, S):
    """S_vyi = sum phi x_i, a table per fixed piece of rows; the caller adds the pieces."""
    n_pieces = S.shape[0]
    for piece in prange(n_pieces):
        sums = S[piece]
        for r in range(piece * row_bag.size // n_pieces, (piece + 1) * row_bag.size // n_pieces):
            L = label_start[row_bag[r] + 1] - label_start[row_bag[r]]
            p, q = row_pair[r], row_place[r]
            for t in range(indptr[r], indptr[r + 1]):
                x = data[t] * multiplicity[r]
                for k in range(L):
                    sums[place[q + k]] += x * P[p + k]
                q += L


# ---------------------------------------------------------------------- Gaussian views


@njit(cache=True)
def gaussian_log_density(x, mean, whiten, constant, diagonal, d, z):
    """Log density from the inverse Cholesky factor, stored transposed: the inner loop runs along memory."""
    D = x.size
    total = 0.0
    if diagonal:
        for i in range(D):
            total += ((x[i] - mean[i]) * whiten[0, i]) ** 2
        return constant - 0.5 * total
    for i in range(D):
        d[i] = x[i] - mean[i]
        z[i] = 0.0
    for j in range(D):
        for i in range(D):
            z[i] += whiten[j, i] * d[j]
    for i in range(D):
        total += z[i] * z[i]
    return constant - 0.5 * total


@njit(parallel=True, cache=True)
def fill_gaussian(X, by_label, rows, pairs, means, whiten, constants, diagonal, P):
    """Log densities of all pairs of a continuous view, eq. 2, label by label."""
    for y in prange(by_label.size - 1):
        d, z = np.empty(X.shape[1]), np.empty(X.shape[1])
        W = whiten[np.int64(y) % whiten.shape[0]]  # a tied covariance has one entry
        for j in range(by_label[y], by_label[y + 1]):
            P[pairs[j]] = gaussian_log_density(X[rows[j]], means[y], W, constants[y], diagonal, d, z)


@njit(parallel=True, cache=True)
def scale_rows(row_bag, row_pair, row_inst, label_start, P, shift):
    """Turn logarithms into likelihoods with a largest value of 1 per row."""
    for r in prange(row_bag.size):
        L = label_start[row_bag[r] + 1] - label_start[row_bag[r]]
        p = row_pair[r]
        best = -np.inf
        for k in range(L):
            best = max(best, P[p + k])
        for k in range(L):
            P[p + k] = math.exp(P[p + k] - best)
        shift[row_inst[r]] = best


@njit(parallel=True, cache=True)
def add_moments(X, by_label, rows, pairs, P, diagonal, mass, first, second):
    """n_vy, sum phi x and sum phi x x' of every label; ``X`` is centred, so moments about 0 do no harm."""
    D = X.shape[1]
    for y in prange(by_label.size - 1):
        for j in range(by_label[y], by_label[y + 1]):
            phi = P[pairs[j]]
            x = X[rows[j]]
            mass[y] += phi
            for i in range(D):
                first[y, i] += phi * x[i]
            if diagonal:
                for i in range(D):
                    second[y, 0, i] += phi * x[i] * x[i]
            else:
                for i in range(D):
                    s = phi * x[i]
                    for k in range(D):
                        second[y, i, k] += s * x[k]
