"""Recordings as blocks of mono float32 samples: any format, rate and number of channels, never a whole file.

What is checked before or while reading: the first bytes (only formats that we name reach the decoder), the
rate, the length, and that samples are numbers of a sane size. Whatever the bytes are, the answer is blocks
or one `DataError` of one line; memory is that of one block.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy  # its signal, which takes most of a second, is loaded by the first use

from bagwise.errors import BagwiseError, DataError, optional

SUFFIXES = (
    *(".wav", ".wave", ".flac", ".ogg", ".oga", ".opus", ".mp3"),
    *(".aif", ".aiff", ".au", ".rf64", ".w64"),
)
RATES = (1_000, 1_000_000)  # Hz
MAX_HOURS = 48.0
LOUDEST = 1e6  # full scale is 1; some programs write floats of the size of 16-bit integers
LARGEST_FACTOR = 1000  # rates such as 47,999 Hz are met to within a few millionths; times are kept exact
BLOCK = 1 << 18  # values (samples times channels) that are decoded at once

_UNKNOWN = 2**31 - 2**16  # from here on a count says "not known when the header was written"
_EARLY = "ends before its header says it does; what is there was taken"
_SIZES = re.compile(r"(?im)^ *(?:data|SSND|data size) *: *(\d+) \(should be (\d+)\)")
_MAGIC = (b"RIFF", b"RIFX", b"RF64", b"fLaC", b"OggS", b"FORM", b".snd", b"riff", b"ID3")


class Recording(NamedTuple):
    """Rate in Hz, mono float32 blocks to be taken once, and notes, complete when the last block is taken."""

    rate: int
    blocks: Iterator[np.ndarray]
    notes: list[str]


def open_recording(source: Any, channel: str | int = "mean", block: int = BLOCK) -> Recording:
    """Open a sound file, or samples in memory with their rate, for reading in blocks of so many values.

    Samples are 1-D, or 2-D with one column per channel; whole numbers are scaled by the range of their type,
    floats have full scale 1. Taken is the mean of all channels, or one of them by its number from 0.
    """
    if isinstance(source, tuple):
        return _from_memory(source, channel, block)
    if not isinstance(source, (str, os.PathLike)):
        raise DataError(
            f"a recording is a path or a pair (samples, rate), got {type(source).__name__}"
            + ("; say at which rate it was recorded" if isinstance(source, np.ndarray) else "")
        )
    return _from_file(Path(source), channel, block)


def _from_memory(source: tuple, channel: str | int, block: int) -> Recording:
    if len(source) != 2:
        raise DataError(f"a recording in memory is a pair (array, rate), got {len(source)} values")
    x, rate = np.asarray(source[0]), source[1]
    if x.ndim not in (1, 2) or x.dtype.kind not in "iuf":
        raise DataError(
            f"samples must be numbers, 1-D or (samples, channels), got shape {x.shape} of {x.dtype}"
        )
    if x.ndim == 2 and x.shape[1] > 64 and x.shape[0] <= 64:
        raise DataError(f"samples must be (samples, channels), got {x.shape}; give the transpose")
    x = x[:, None] if x.ndim == 1 else x
    rate = _checked_rate(rate, None)
    _check_length(len(x), rate, None)
    column = _column(x.shape[1], channel, None)
    step = max(block // max(x.shape[1], 1), 1)

    def blocks() -> Iterator[np.ndarray]:
        for start in range(0, len(x), step):
            some = x[start : start + step]
            if x.dtype.kind != "f":
                half = 2.0 ** (8 * x.dtype.itemsize - 1)
                some = (some.astype(np.float64) - (half if x.dtype.kind == "u" else 0.0)) / half
            yield _mono(some.astype(np.float32, copy=False), column, start, rate, None)

    return Recording(rate, blocks(), [])


def _from_file(path: Path, channel: str | int, block: int) -> Recording:
    soundfile = optional("soundfile", "sound files need the package soundfile: pip install 'bagwise[audio]'")
    _check_kind(path)
    try:
        handle = soundfile.SoundFile(os.fspath(path))
    except (RuntimeError, OSError, ValueError, TypeError, MemoryError, OverflowError) as error:
        raise DataError(f"cannot be opened as sound: {_reason(error)}", path=path) from None
    try:
        rate = _checked_rate(handle.samplerate, path)
        n_channels = handle.channels
        column = _column(n_channels, channel, path)
        # Not more than that: headers of streams claim huge counts. What is there is counted below.
        if handle.frames == 0:
            raise DataError("holds no samples", path=path)
    except BaseException:
        handle.close()
        raise
    # The package seeks to where it is after every read, which is slow, and fails at the end of a file whose
    # header does not know its length; it does not if it believes that it cannot.
    handle.seekable = lambda: False
    # what the decoder says of bytes that the header promises and the file lacks (power was lost)
    sizes = _SIZES.findall(str(handle.extra_info))
    notes = [_EARLY] if any(int(found) < int(promised) < _UNKNOWN for promised, found in sizes) else []
    step = max(block // n_channels, 1)

    def blocks() -> Iterator[np.ndarray]:
        done = 0
        with handle:
            claimed = handle.frames
            while True:
                try:
                    x = handle.read(step, dtype="float32", always_2d=True)
                except (RuntimeError, OSError, ValueError, MemoryError) as error:
                    at = f" at {done / rate:.1f} s" if done else ""
                    raise DataError(f"cannot be decoded{at}: {_reason(error)}", path=path) from None
                if len(x) == 0:
                    break
                _check_length(done + len(x), rate, path)
                yield _mono(x, column, done, rate, path)
                done += len(x)
        if done == 0:
            raise DataError("holds no samples that can be decoded", path=path)
        if done < claimed < _UNKNOWN and not notes:
            notes.append(_EARLY)

    return Recording(rate, blocks(), notes)


def _check_kind(path: Path) -> None:
    """Let only the formats we name reach the decoder, which knows many old ones besides."""
    try:
        with open(path, "rb") as file:
            head = file.read(12)
    except FileNotFoundError:
        raise DataError("no such file", path=path) from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path=path) from None
    if not head:
        raise DataError("is an empty file", path=path)
    mpeg = len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0
    if not mpeg and not head.startswith(_MAGIC):
        raise DataError(
            "is not a sound file of a known kind (WAV, FLAC, OGG, MP3, AIFF, AU, W64, RF64)", path=path
        )


def _checked_rate(rate: Any, path: Path | None) -> int:
    try:
        whole = int(rate)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"the rate must be a number of samples per second, got {rate!r}", path=path) from None
    if whole != rate or not RATES[0] <= whole <= RATES[1]:
        raise DataError(
            f"expected a rate of {RATES[0]:,} to {RATES[1]:,} samples per second, found {rate}", path=path
        )
    return whole


def _check_length(n_samples: int, rate: int, path: Path | None) -> None:
    if n_samples == 0:
        raise DataError("holds no samples", path=path)
    if n_samples > MAX_HOURS * 3600 * rate:
        raise DataError(f"lasts longer than {MAX_HOURS:g} hours; split it into parts", path=path)


def _column(n_channels: int, channel: str | int, path: Path | None) -> int | None:
    if n_channels < 1:
        raise DataError("has no channel", path=path)
    if channel == "mean":
        return 0 if n_channels == 1 else None
    if not 0 <= int(channel) < n_channels:
        raise DataError(
            f"has {n_channels} channel{'s' * (n_channels > 1)}, no channel {channel} (from 0)", path=path
        )
    return int(channel)


def _mono(x: np.ndarray, column: int | None, done: int, rate: int, path: Path | None) -> np.ndarray:
    if column is None:
        # a product with a vector: the mean along the short axis of an interleaved block is ten times slower
        mono = x @ np.full(x.shape[1], 1.0 / x.shape[1], dtype=np.float32)
    else:
        mono = np.ascontiguousarray(x[:, column])
    loudest = max(float(mono.max()), -float(mono.min()))  # NaN if any sample is
    if not loudest <= LOUDEST:
        bad = int(np.argmax(~(np.abs(mono) <= LOUDEST)))
        raise DataError(
            f"sample {done + bad:,} (at {(done + bad) / rate:.2f} s) is {mono[bad]}, not between -1 and 1",
            path=path,
        )
    return mono


def _reason(error: Exception) -> str:
    """The decoder's own words without the path, in one line."""
    if isinstance(error, BagwiseError):
        return str(error)
    text = str(getattr(error, "error_string", "") or error) or type(error).__name__
    if "does not exist" in text:  # what it says of an MP3 without a single whole frame
        return "damaged or cut off"
    return " ".join(text.split()).rstrip(".")


# ---------------------------------------------------------------------- another rate


def ratio(rate_in: int, rate_out: int) -> Fraction:
    """What to multiply the rate by: exact for all usual rates."""
    return Fraction(rate_out, rate_in).limit_denominator(LARGEST_FACTOR)


@lru_cache(maxsize=8)
def _low_pass(up: int, down: int) -> np.ndarray:
    """Coefficients of the filter, odd in number and symmetric, so that nothing is shifted in time."""
    widest = max(up, down)
    taps = scipy.signal.firwin(20 * widest + 1, 1.0 / widest, window=("kaiser", 5.0)) * up
    return taps.astype(np.float32)


def resampled(blocks: Iterable[np.ndarray], factor: Fraction) -> Iterator[np.ndarray]:
    """Blocks at ``factor`` times their rate, by polyphase filtering; n samples become ceil(n * factor).

    Outside the recording is silence. Each block is filtered together with the neighbouring samples that the
    filter reaches, and starts at a multiple of the factor's denominator, where the phases begin anew: so
    where blocks end does not matter.
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
    # Output k of the whole lies at k * down + half of the filtered, upsampled signal; zeros before the taps
    # bring half to a multiple of down.
    half = len(taps) // 2
    pad = -half % down
    y = scipy.signal.upfirdn(np.concatenate([np.zeros(pad, dtype=np.float32), taps]), x, up, down)
    first = (half + pad) // down + reach * up // down
    return y[first : first + n_out]
