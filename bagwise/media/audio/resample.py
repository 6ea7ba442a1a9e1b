"""A change of rate without seams: polyphase filtering of a stream of blocks, equal to that of the whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import lru_cache

import numpy as np

LARGEST_FACTOR = 1000  # rates such as 47,999 Hz are met to within a few millionths; times are kept exact


def ratio(rate_in: int, rate_out: int) -> Fraction:
    """What to multiply the rate by: exact for all usual rates.

    Examples
    --------
    >>> ratio(44100, 48000), ratio(96000, 48000)
    (Fraction(160, 147), Fraction(1, 2))
    """
    return Fraction(rate_out, rate_in).limit_denominator(LARGEST_FACTOR)


@lru_cache(maxsize=8)
def _low_pass(up: int, down: int) -> np.ndarray:
    """Coefficients of the filter, odd in number and symmetric, so that nothing is shifted in time."""
    from scipy.signal import firwin

    widest = max(up, down)
    taps = firwin(20 * widest + 1, 1.0 / widest, window=("kaiser", 5.0)) * up
    return taps.astype(np.float32)


def resampled(blocks: Iterable[np.ndarray], factor: Fraction) -> Iterator[np.ndarray]:
    """Blocks at ``factor`` times their rate; n samples become ceil(n * factor).

    Outside the recording is silence. Each block is filtered together with the neighbouring samples that the
    filter reaches, and starts at a multiple of the factor's denominator, where the phases begin anew: so
    where blocks end does not matter.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.ones(1000, dtype=np.float32)
    >>> sum(len(y) for y in resampled([x[:301], x[301:]], Fraction(3, 2)))
    1500
    """
    up, down = factor.numerator, factor.denominator
    if up == down:
        yield from blocks
        return
    taps = _low_pass(up, down)
    # how far the filter reaches in samples of the input, in whole turns of the phases
    reach = -(-(len(taps) // 2) // (up * down)) * down
    rest = np.zeros(reach, dtype=np.float32)  # the silence before
    for block in blocks:
        rest = np.concatenate([rest, block])
        ready = (len(rest) - 2 * reach) // down * down
        if ready > 0:
            yield _filtered(rest[: ready + 2 * reach], taps, up, down, reach, ready * up // down)
            rest = rest[ready:]
    left = len(rest) - reach
    if left > 0:
        tail = np.concatenate([rest, np.zeros(reach, dtype=np.float32)])
        yield _filtered(tail, taps, up, down, reach, -(-left * up // down))


def _filtered(x: np.ndarray, taps: np.ndarray, up: int, down: int, reach: int, n_out: int) -> np.ndarray:
    from scipy.signal import upfirdn

    # Output k of the whole lies at k * down + half of the filtered, upsampled signal; zeros before the taps
    # bring half to a multiple of down.
    half = len(taps) // 2
    pad = -half % down
    y = upfirdn(np.concatenate([np.zeros(pad, dtype=np.float32), taps]), x, up, down)
    first = (half + pad) // down + reach * up // down
    return y[first : first + n_out]
