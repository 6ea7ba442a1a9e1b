"""How the loops of MIMLmix are spread over the cores: all of them, since it has no ``n_jobs``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import digamma, logsumexp

from bagwise.compute.numeric import frozen
from bagwise.compute.threads import cores, in_threads
from bagwise.models.mimlmix.kernels import Bounds, Pairs, Room, infer_bags, share_out

# Roughly, in nanoseconds: what is worth another thread, and what one pair of an instance and a label costs.
_WORTH_A_THREAD = 3e5
_SWEEPS, _LOOK_UP = 50.0, 4.0
_TINY = 1e-290  # likelihoods below count as this


def spread(
    loop: Callable[..., Any], n: int, *arguments: Any, pairs: int, cost: float = _LOOK_UP, work: Any = None
) -> None:
    """Call ``loop(first, last, *arguments)`` on ranges that cover ``range(n)``.

    Parameters
    ----------
    loop : callable
        A compiled loop, or one of matrix products.
    n : int
        Length of the range.
    *arguments
        Handed on.
    pairs : int
        Pairs of an instance and a label that the whole range has.
    cost : float
        Nanoseconds per pair.
    work : ndarray of shape (n + 1,), optional
        Accumulated work, where it is uneven.
    """
    total = n if work is None else int(work[-1])
    smallest = max(1, int(total * _WORTH_A_THREAD / max(pairs * cost, 1.0)))
    in_threads(lambda first, last: loop(first, last, *arguments), n, cores(), work=work, smallest=smallest)


def infer(pairs: Pairs, P: np.ndarray, alpha: np.ndarray, gamma: np.ndarray, bounds: Bounds) -> np.ndarray:
    """`infer_bags` of the bags ``pairs.which``; gamma changes in place, E ln theta is returned."""
    psi, start, alpha = np.zeros(len(gamma)), gamma.copy(), frozen(alpha)
    work = _work(pairs)
    widest, largest = _widest(pairs), int(np.diff(work).max(initial=0))

    def loop(first: int, last: int) -> None:
        room = Room.make(widest, largest if bounds.cold else 0)
        infer_bags(first, last, pairs, P, alpha, gamma, psi, bounds, room)

    spread(loop, len(pairs.which), pairs=int(work[-1]), cost=_SWEEPS, work=work)
    with_labels = pairs.which[np.diff(pairs.label_start)[pairs.which] > 0]
    for bag in with_labels[np.isnan(gamma[pairs.label_start[with_labels]])]:
        own = slice(*pairs.label_start[bag : bag + 2])
        weight = pairs.weight[slice(*pairs.inst_start[bag : bag + 2])]
        block = P[slice(*pairs.pair_start[bag : bag + 2])]
        log_p = np.log(np.maximum(block, _TINY)).reshape(len(weight), -1)
        gamma[own], psi[own] = _infer_in_logs(log_p, weight, alpha[own], start[own], bounds)
    return psi


def phi(pairs: Pairs, P: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """`share_out`: likelihoods become phi in place; ln sum_y exp(psi_y) p_y of every instance is returned."""
    log_r, psi = np.zeros(len(pairs.weight)), frozen(psi)
    widest, work = _widest(pairs), _work(pairs)

    def loop(first: int, last: int) -> None:
        share_out(first, last, pairs, P, psi, log_r, np.empty(widest))

    spread(loop, len(pairs.which), pairs=int(work[-1]), work=work)
    for m in np.flatnonzero(np.isnan(log_r)):  # rare: in logarithms, row by row
        bag = int(np.searchsorted(pairs.inst_start, m, side="right")) - 1
        own = slice(*pairs.label_start[bag : bag + 2])
        first = pairs.pair_start[bag] + (m - pairs.inst_start[bag]) * (own.stop - own.start)
        row = slice(first, first + own.stop - own.start)
        s = np.log(np.maximum(P[row], _TINY)) + psi[own]
        log_r[m] = logsumexp(s)
        P[row] = np.exp(s - log_r[m])
    return log_r


def _infer_in_logs(
    log_p: np.ndarray, weight: np.ndarray, alpha: np.ndarray, gamma: np.ndarray, bounds: Bounds
) -> tuple[np.ndarray, np.ndarray]:
    """The E-step of one bag where plain products underflow: minute priors, as with ``xi`` below .002."""
    psi = gamma
    for _ in range(bounds.max_sweeps):
        psi = digamma(gamma) if bounds.sharp else np.log(gamma)
        s = log_p + psi
        before, gamma = gamma, alpha + weight @ np.exp(s - logsumexp(s, axis=1, keepdims=True))
        if np.abs(gamma - before).mean() < bounds.tol:
            break
    return gamma, psi


def _work(pairs: Pairs) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.diff(pairs.pair_start)[pairs.which])])


def _widest(pairs: Pairs) -> int:
    return int(np.diff(pairs.label_start).max(initial=1))
