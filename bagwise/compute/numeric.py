"""Small numerical parts that compiled loops of several methods share."""

from __future__ import annotations

import math

import numpy as np

from bagwise.compute.compiled import part

__all__ = ["exp_digamma", "exp_of_negatives", "reordered_dot", "splitmix64"]


_LOG2_E, _LN_2, _LN_2_REST = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10
_TO_WHOLE = 6755399441055744.0  # 1.5 * 2**52: what is added to it is rounded, and stands in its last bits
_E2, _E3, _E4, _E5, _E6, _E7, _E8, _E9, _E10, _E11, _E12, _E13 = (1 / math.factorial(k) for k in range(2, 14))


# Terms may be added in any order that the compiler fixes, which lets it use vector registers; nothing is
# assumed about infinite or undefined numbers.
@part(fastmath={"reassoc", "contract"})
def reordered_dot(a, b, n):
    """Inner product of the first ``n`` entries, summed in whatever order suits the registers."""
    total = a.dtype.type(0)  # from the first entry on: a loop that begins at the second crosses cache lines
    for k in range(n):
        total += a[k] * b[k]
    return total


# Fused multiply-adds are allowed, no other change of order: the remainder needs its two steps.
@part(error_model="numpy", fastmath={"contract"})
def exp_of_negatives(x, scale, bits):
    """Put exp(x) in the place of every x <= 0, to a unit in the last place; below -708 it stays at 3e-308.

    Loops without a call, which fill vector registers: many times faster than one exponential after another.
    ``scale`` is scratch of the size of x, ``bits`` its view as integers.
    """
    for i in range(x.size):
        x[i] = -708.0 if x[i] < -708.0 else x[i]  # nan stays nan
        scale[i] = x[i] * _LOG2_E + _TO_WHOLE
    for i in range(x.size):  # exp(x) = 2^k exp(r) with |r| <= ln(2) / 2, by its series
        k = scale[i] - _TO_WHOLE
        r = (x[i] - k * _LN_2) - k * _LN_2_REST
        tail = _E10 + r * (_E11 + r * (_E12 + r * _E13))
        tail = _E6 + r * (_E7 + r * (_E8 + r * (_E9 + r * tail)))
        tail = _E2 + r * (_E3 + r * (_E4 + r * (_E5 + r * tail)))
        x[i] = 1.0 + (r + r * r * tail)
    for i in range(x.size):
        bits[i] = (bits[i] + 1023) << 52  # k becomes the exponent of 2^k
    for i in range(x.size):
        x[i] *= scale[i]


@part
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


@part
def splitmix64(state):
    """Next 64 random bits of the generator splitmix64, whose state is an array of one unsigned number."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
