"""Power spectra of short frames, and about a hundred numbers for a piece of sound that are made of them.

Frame k holds the samples ``k * hop`` to ``k * hop + length`` (10 ms and about 21 ms), weighted by a Hann
window. Powers are scaled so that their sum over all frequencies is the mean square of the frame, whatever
the rate; only the bins between ``low`` and ``high`` are kept.

All numbers are computed on this grid of time and frequency, so they mean the same whatever the rate of the
recording, and all but ``level`` are unchanged when the recording is made louder. The pieces of one call are a
stack (n, T, F) of equal size: windows of a recording together, calls one at a time, with zeros where the call
is not.

Symbols: P power (n, T frames, F bins); E = sum over bins, the envelope; S = sum over frames, the spectrum;
L log-mel in dB, clipped 60 dB below the piece's own mean level; weights of frames are E throughout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.fft import next_fast_len, rfft

CHUNK = 128  # frames transformed at once: their samples stay in the cache


class Grid(NamedTuple):
    """Frames and bins at a working rate."""

    rate: int
    hop: int  # samples from frame to frame
    length: int  # samples of a frame
    first: int  # first bin that is kept
    last: int  # last bin that is kept

    @property
    def n_bins(self) -> int:
        """Number of bins kept."""
        return self.last - self.first + 1

    @property
    def step(self) -> float:
        """Hz from bin to bin."""
        return self.rate / self.length

    @property
    def frequencies(self) -> np.ndarray:
        """Hz of each bin that is kept."""
        return np.arange(self.first, self.last + 1) * self.step


def make_grid(rate: int, low: float, high: float) -> Grid:
    """Grid of a working rate: frames of about 21 ms every 10 ms, bins of about 47 Hz from low to high."""
    length = next_fast_len(max(round(rate * 1024 / 48000), 16), real=True)
    step = rate / length
    first = max(int(np.floor(low / step + 0.5)), 1)  # the bin whose range holds low; never that of 0 Hz
    last = max(min(int(np.ceil(high / step - 0.5)), (length - 1) // 2), first + 3)
    return Grid(rate, max(round(rate * 0.01), 1), length, first, last)


def powers(x: np.ndarray, grid: Grid) -> np.ndarray:
    """Power of each whole frame of some samples: (n_frames, n_bins) of float32."""
    n_frames = max((len(x) - grid.length) // grid.hop + 1, 0)
    out = np.empty((n_frames, grid.n_bins), dtype=np.float32)
    if n_frames == 0:
        return out
    window = 0.5 - 0.5 * np.cos(2 * np.pi * (np.arange(grid.length) + 0.5) / grid.length)
    # both halves of the spectrum, and Parseval: the sum of powers is the mean square
    window = (window * np.sqrt(2.0 / (grid.length * np.sum(window**2)))).astype(np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(x, grid.length)[:: grid.hop]
    for start in range(0, n_frames, CHUNK):
        Z = rfft(frames[start : start + CHUNK] * window, axis=1, workers=1)
        kept = Z[:, grid.first : grid.last + 1]
        part = out[start : start + CHUNK]
        np.multiply(kept.real, kept.real, out=part)
        part += kept.imag**2
    return out


def spectra(blocks: Iterable[np.ndarray], grid: Grid) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Powers of a stream of samples, and the samples from each part's first frame to that of the next part.

    Frames are always transformed in the same groups, so that the blocks in which samples come change no
    bit. A recording shorter than one frame is padded with silence to one.
    """
    rest, done = np.zeros(0, dtype=np.float32), 0
    for block in blocks:
        rest = np.concatenate([rest, block])
        n_frames = max((len(rest) - grid.length) // grid.hop + 1, 0) // CHUNK * CHUNK
        if n_frames:
            yield powers(rest[: (n_frames - 1) * grid.hop + grid.length], grid), rest[: n_frames * grid.hop]
            rest = rest[n_frames * grid.hop :]
            done += n_frames
    if done == 0 and len(rest) < grid.length:
        yield powers(np.pad(rest, (0, grid.length - len(rest))), grid), rest
        return
    yield powers(rest, grid), rest


# ---------------------------------------------------------------------- numbers of a piece


SILENCE = 1e-12  # mean square at which level ends: -120 dB of full scale
DEPTH = 60.0  # dB below the mean level of the piece at which log-mel values end
MODULATION = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 50.0)  # Hz, edges of the bands of the envelope's spectrum
SHARES = (5, 25, 50, 75, 95)  # per cent of energy below the roll-off frequencies
_TINY = 1e-30

SPECTRUM = {
    "centroid": "mean frequency of the spectrum, Hz",
    "bandwidth": "standard deviation of frequency, Hz",
    "spectral_skewness": "skewness of the spectrum",
    "spectral_kurtosis": "excess kurtosis of the spectrum",
    **{f"rolloff_{q:02d}": f"frequency below which {q} % of the energy lies, Hz" for q in SHARES},
    "flatness": "geometric over arithmetic mean of the spectrum's bins, dB: 0 is noise, a tone is far below",
    "spectral_entropy": "entropy of the spectrum over that of an even one, 0 to 1",
    "peak_frequency": "frequency of the largest bin of the spectrum, Hz",
    "peak_share": "share of the energy within the largest bin and its two neighbours",
}
FRAMES = {
    "centroid_std": "standard deviation over frames of the frame's mean frequency, Hz",
    "bandwidth_mean": "mean over frames of the frame's own bandwidth, Hz",
    "bandwidth_std": "standard deviation over frames of the frame's bandwidth, Hz",
    "entropy_mean": "mean over frames of the entropy of the frame's mel bands, 0 to 1",
    "entropy_std": "standard deviation of the same",
    "flux": "mean change of log-mel from frame to frame, dB",
    "occupancy": "share of cells of frame and mel band within 20 dB of the loudest",
}
TRACK = {
    "track_mean": "mean over frames of the frame's loudest frequency, Hz",
    "track_std": "standard deviation of the same",
    "track_first": "its mean in the first third of the piece",
    "track_middle": "its mean in the middle third",
    "track_last": "its mean in the last third",
    "track_lowest": "its least value in frames within 10 dB of the loudest frame, Hz",
    "track_highest": "its greatest value in these frames, Hz",
    "track_slope": "slope of the line fitted to it, Hz per second",
    "track_residual": "standard deviation around that line, Hz",
}
TIME = {
    "duration": "seconds",
    "level": "mean square, dB of full scale",
    "crest": "loudest frame over the mean, dB",
    "envelope_std": "standard deviation over frames of the envelope in dB, clipped as log-mel is",
    "activity": "share of frames within 10 dB of the loudest",
    "attack": "where the loudest frame lies, 0 (begin) to 1 (end)",
    "time_centroid": "where the energy lies on average, 0 to 1",
    "time_spread": "standard deviation of the same",
    "time_skewness": "skewness of the envelope over time",
    "time_kurtosis": "excess kurtosis of the envelope over time",
    "time_entropy": "entropy of the envelope over that of an even one, 0 to 1",
    "modulation_depth": "standard deviation over mean of the envelope's amplitude",
    **{
        f"modulation_{a:g}_{b:g}": f"share of the amplitude's changes at {a:g} to {b:g} Hz"
        for a, b in zip(MODULATION[:-1], MODULATION[1:])
    },
}


def feature_table(grid: Grid, bands: int) -> dict[str, str]:
    """Names of all numbers in their order, and what each is.

    Examples
    --------
    >>> from bagwise.media.audio.describe import make_grid
    >>> table = feature_table(make_grid(48000, 50, 16000), 28)
    >>> len(table), table["mel_05_mean"]
    (103, 'mean over frames of log-mel around 543 Hz over the level of the piece, dB')
    """
    _, centres = mel_bands(grid, bands)
    mel = {
        f"mel_{k:02d}_mean": f"mean over frames of log-mel around {f:.0f} Hz over the level of the piece, dB"
        for k, f in enumerate(centres, 1)
    }
    spread = {
        f"mel_{k:02d}_std": f"standard deviation over frames of log-mel around {f:.0f} Hz, dB"
        for k, f in enumerate(centres, 1)
    }
    return {**mel, **spread, **SPECTRUM, **FRAMES, **TRACK, **TIME}


@lru_cache(maxsize=8)
def mel_bands(grid: Grid, bands: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights (n_bins, bands) of mel bands and the frequencies of their peaks in Hz.

    Bands are triangles, evenly spaced in mel(f) = 2595 log10(1 + f / 700) from the lowest to the highest
    frequency of the grid; each reaches to the peaks of its neighbours. A bin's weight is the mean of the
    triangle over the range of frequencies that the bin stands for, so that no band is empty however narrow.
    """
    edges_bins = (np.arange(grid.n_bins + 1) + grid.first - 0.5) * grid.step
    ends = 2595.0 * np.log10(1.0 + edges_bins[[0, -1]] / 700.0)
    corners = 700.0 * (10.0 ** (np.linspace(ends[0], ends[1], bands + 2) / 2595.0) - 1.0)
    left, peak, right = corners[:-2], corners[1:-1], corners[2:]
    below = edges_bins[:, None]
    rising = np.clip(below, left, peak) - left  # integrals of the triangle up to each edge
    falling = right - np.clip(below, peak, right)
    area = rising**2 / (peak - left) / 2 + (right - peak) / 2 - falling**2 / (right - peak) / 2
    return (np.diff(area, axis=0) / grid.step).astype(np.float32), peak


def describe(P: np.ndarray, grid: Grid, bands: int, seconds: np.ndarray) -> np.ndarray:
    """Numbers (n, n_features) in the order of `feature_table` for powers (n, n_frames, n_bins) of n pieces.

    Powers are zero where a frame and bin do not belong to the piece; ``seconds`` (n,) are their lengths.
    """
    n, T, F = P.shape
    W, _ = mel_bands(grid, bands)
    # Frequencies as -1 to 1 across the grid: squares in single precision lose nothing there.
    u = np.linspace(-1.0, 1.0, F)
    products = P.reshape(n * T, F) @ np.column_stack([W, np.ones(F), u, u**2]).astype(np.float32)
    products = products.reshape(n, T, -1)
    M, E = products[..., :bands], products[..., bands].astype(np.float64)
    level = 10.0 * np.log10(np.maximum(E.mean(axis=1), SILENCE))
    L = 10.0 * np.log10(np.maximum(M, np.float32(_TINY))) - level[:, None, None].astype(np.float32)
    np.maximum(L, np.float32(-DEPTH), out=L)
    weights = E + _TINY
    weights = weights / weights.sum(axis=1, keepdims=True)
    first, second = products[..., bands + 1] / (E + _TINY), products[..., bands + 2] / (E + _TINY)
    hertz = np.float64((grid.last - grid.first) * grid.step / 2)  # of one unit of u
    columns = [
        L.mean(axis=1),
        L.std(axis=1),
        _of_spectrum(P.sum(axis=1, dtype=np.float64), grid),
        _of_frames(L, M, E, weights, first * hertz, np.sqrt(np.maximum(second - first**2, 0.0)) * hertz),
        _of_track(P, E, weights, grid),
        _of_time(E, weights, level, grid, seconds),
    ]
    return np.hstack(columns).astype(np.float32)


def _moments(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, ...]:
    """Mean, standard deviation, skewness and excess kurtosis along the last axis; weights sum to 1."""
    mean = np.sum(weights * values, axis=-1)
    away = values - mean[..., None]
    variance = np.sum(weights * away**2, axis=-1)
    std = np.sqrt(variance)
    flat = std <= 1e-9 * np.ptp(values, axis=-1) + 1e-12
    safe = np.where(flat, 1.0, std)
    skewness = np.where(flat, 0.0, np.sum(weights * away**3, axis=-1) / safe**3)
    kurtosis = np.where(flat, 0.0, np.sum(weights * away**4, axis=-1) / safe**4 - 3.0)
    return mean, std, skewness, kurtosis


def _entropy(shares: np.ndarray) -> np.ndarray:
    """Entropy along the last axis over its greatest possible value."""
    n = shares.shape[-1]
    if n < 2:
        return np.zeros(shares.shape[:-1])
    return -np.sum(shares * np.log(shares + _TINY), axis=-1) / np.log(n)


def _of_spectrum(S: np.ndarray, grid: Grid) -> np.ndarray:
    f = grid.frequencies
    S = S + _TINY  # silence is an even spectrum
    shares = S / S.sum(axis=1, keepdims=True)
    mean, std, skewness, kurtosis = _moments(np.broadcast_to(f, S.shape), shares)
    below = np.cumsum(shares, axis=1)
    rolloff = [f[np.minimum((below < q / 100).sum(axis=1), len(f) - 1)] for q in SHARES]
    # clipped as log-mel is: bins that do not belong to a call are zero
    clipped = np.maximum(shares, shares.mean(axis=1, keepdims=True) * 10 ** (-DEPTH / 10))
    flatness = 10.0 * (np.log10(clipped).mean(axis=1) - np.log10(clipped.mean(axis=1)))
    peak = S.argmax(axis=1)
    near = np.pad(shares, ((0, 0), (1, 1)))
    rows = np.arange(len(S))
    share = near[rows, peak] + near[rows, peak + 1] + near[rows, peak + 2]
    return np.column_stack(
        [mean, std, skewness, kurtosis, *rolloff, flatness, _entropy(shares), f[peak], share]
    )


def _of_frames(L, M, E, weights, centroid, bandwidth) -> np.ndarray:  # each (n, T), but L, M (n, T, bands)
    def spread(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean = np.sum(weights * values, axis=1)
        return mean, np.sqrt(np.sum(weights * (values - mean[:, None]) ** 2, axis=1))

    shares = M / (M.sum(axis=2, keepdims=True) + np.float32(_TINY))
    entropy = _entropy(shares)
    flux = np.abs(np.diff(L, axis=1)).mean(axis=(1, 2)) if L.shape[1] > 1 else np.zeros(len(L))
    loudest = L.max(axis=(1, 2), keepdims=True)
    occupancy = (loudest - L < 20.0).mean(axis=(1, 2))
    return np.column_stack([spread(centroid)[1], *spread(bandwidth), *spread(entropy), flux, occupancy])


def _of_track(P: np.ndarray, E: np.ndarray, weights: np.ndarray, grid: Grid) -> np.ndarray:
    T = P.shape[1]
    track = grid.frequencies[P.argmax(axis=2)]  # (n, T)
    mean = np.sum(weights * track, axis=1)
    away = track - mean[:, None]
    std = np.sqrt(np.sum(weights * away**2, axis=1))
    thirds = []
    for k in range(3):
        inside = slice(k * T // 3, max((k + 1) * T // 3, k * T // 3 + 1))
        w = weights[:, inside].sum(axis=1)
        part = np.sum(weights[:, inside] * track[:, inside], axis=1)
        thirds.append(np.where(w > 1e-9, part / np.maximum(w, 1e-9), mean))
    loud = E.max(axis=1, keepdims=True) <= 10.0 * E
    lowest = np.where(loud, track, np.inf).min(axis=1)
    highest = np.where(loud, track, -np.inf).max(axis=1)
    t = np.arange(T) * (grid.hop / grid.rate)
    t_away = t - np.sum(weights * t, axis=1, keepdims=True)
    t_variance = np.sum(weights * t_away**2, axis=1)
    still = t_variance < (0.1 * grid.hop / grid.rate) ** 2  # all energy in one frame: no slope
    slope = np.where(still, 0.0, np.sum(weights * t_away * away, axis=1) / np.where(still, 1.0, t_variance))
    residual = np.sqrt(np.sum(weights * (away - slope[:, None] * t_away) ** 2, axis=1))
    return np.column_stack([mean, std, *thirds, lowest, highest, slope, residual])


def _of_time(E, weights, level, grid: Grid, seconds) -> np.ndarray:  # E, weights (n, T)
    n, T = E.shape
    loudest = E.max(axis=1)
    crest = np.where(loudest > _TINY, 10.0 * np.log10((loudest + _TINY) / (E.mean(axis=1) + _TINY)), 0.0)
    decibels = 10.0 * np.log10(np.maximum(E, _TINY)) - level[:, None]
    place = (np.arange(T) + 0.5) / T
    moments = _moments(np.broadcast_to(place, E.shape), weights)
    amplitude = np.sqrt(E)
    average = amplitude.mean(axis=1, keepdims=True)
    changes = amplitude / (average + _TINY) - (average > _TINY)
    spectrum = np.abs(np.fft.rfft(changes, n=max(512, 1 << (T - 1).bit_length()), axis=1)) ** 2
    hertz = np.linspace(0.0, 0.5 * grid.rate / grid.hop, spectrum.shape[1])
    which = np.searchsorted(MODULATION, hertz, side="right") - 1  # band of each bin; -1 below the first
    total = spectrum.sum(axis=1) + _TINY
    shares = [spectrum[:, which == k].sum(axis=1) / total for k in range(len(MODULATION) - 1)]
    return np.column_stack(
        [
            np.broadcast_to(seconds, (n,)),
            level,
            crest,
            np.maximum(decibels, -DEPTH).std(axis=1),
            (loudest[:, None] <= 10.0 * E).mean(axis=1),
            place[E.argmax(axis=1)],
            *moments,
            _entropy(weights),
            changes.std(axis=1),
            *shares,
        ]
    )
