"""Recordings of chirps by ten species."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bagwise.datasets.media._files import File, Truth, filled


class Species(NamedTuple):
    """A call: from one frequency to another (Hz), as one sweep or so many notes, in so many seconds."""

    low: float
    high: float
    rising: bool
    notes: int
    seconds: float


# Two of each pair share a band and differ in shape, so that the band alone does not tell them apart.
SPECIES = {
    "bunting": Species(900, 1500, True, 1, 0.5),
    "crake": Species(900, 1500, False, 5, 0.6),
    "dipper": Species(1900, 2700, True, 1, 0.35),
    "finch": Species(1900, 2700, False, 1, 0.7),
    "lark": Species(3200, 4200, True, 6, 0.7),
    "pipit": Species(3200, 4200, False, 2, 0.4),
    "robin": Species(4800, 6000, True, 2, 0.6),
    "siskin": Species(4800, 6000, False, 1, 0.3),
    "thrush": Species(6800, 8400, True, 1, 0.6),
    "wren": Species(6800, 8400, False, 8, 0.8),
}


def make_recordings(
    folder: File,
    n_files: int = 100,
    *,
    labels: File | None = None,
    seconds: float = 8.0,
    calls: tuple[int, int] = (3, 7),
    noise: float = 0.05,
    rate: int = 22_050,
    random_state: int = 0,
) -> Truth:
    """Recordings (WAV, 16 bit) of chirps by ten species, overlapping in time, in noise.

    Parameters
    ----------
    folder : path
        Where to write ``recording_000.wav``, ...
    n_files : int, default=100
        Number of recordings.
    labels : path, optional
        CSV file of the species in each recording.
    seconds : float, default=8.0
        Length of a recording.
    calls : pair of int, default=(3, 7)
        Fewest and most calls in a recording. Calls of the same band never overlap.
    noise : float, default=0.05
        Root mean square of the noise (the loudest call has an amplitude of 0.5, the softest of 0.2).
    rate : int, default=22050
        Samples per second.
    random_state : int, default=0
        Seed.

    Examples
    --------
    >>> import tempfile
    >>> truth = make_recordings(tempfile.mkdtemp(), 2)
    >>> list(truth.labels), set(truth.labels["recording_000.wav"]) <= set(SPECIES)
    (['recording_000.wav', 'recording_001.wav'], True)
    >>> sorted(truth.spans[0])
    ['end', 'file', 'high', 'label', 'low', 'start']
    """
    rng = np.random.default_rng(random_state)
    names = list(SPECIES)

    def make(path: Path) -> list[dict[str, Any]]:
        sound = noise * rng.standard_normal(int(seconds * rate))
        spans: list[dict[str, Any]] = []
        for _ in range(rng.integers(calls[0], calls[1] + 1)):
            name = names[rng.integers(len(names))]
            kind = SPECIES[name]
            start = rng.uniform(0.1, seconds - kind.seconds - 0.1)
            span = {"start": start, "end": start + kind.seconds, "low": kind.low, "high": kind.high}
            if any(_collide(span, other) for other in spans):
                continue
            call = rng.uniform(0.2, 0.5) * _call(kind, rate, rng.uniform(0.97, 1.03))
            first = int(start * rate)
            sound[first : first + len(call)] += call
            spans.append({"label": name, **span})
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())
        return spans

    return filled(folder, "recording", ".wav", n_files, make, labels)


def _call(kind: Species, rate: int, pitch: float) -> np.ndarray:
    """A sweep, or notes that each sweep, with soft edges."""
    n = int(kind.seconds * rate / kind.notes)
    low, high = kind.low * pitch, kind.high * pitch
    a, b = (low, high) if kind.rising else (high, low)
    frequency = np.linspace(a, b, n)
    tone = np.sin(2 * np.pi * np.cumsum(frequency) / rate)
    shape = np.sin(np.pi * (np.arange(n) + 0.5) / n) ** 0.5
    if kind.notes > 1:  # a rest after each note
        shape *= np.arange(n) < 0.7 * n
    return np.tile(tone * shape, kind.notes)


def _collide(a: dict[str, Any], b: dict[str, Any]) -> bool:
    apart = a["start"] > b["end"] + 0.15 or b["start"] > a["end"] + 0.15
    return a["low"] == b["low"] and not apart
