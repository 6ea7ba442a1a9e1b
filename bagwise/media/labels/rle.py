"""Masks as run lengths: COCO's two forms and the brush strokes of Label Studio, read without unpacking them.

A mask is kept as the ends of its runs (`Mask`), so a declared size of a million by a million costs nothing;
whatever is read is bounded by the length of what was written.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bagwise.errors import DataError
from bagwise.media.labels.span import Mask

_BITS = 8
_MOST_PIXELS = 1 << 40


def coco_mask(counts: str | Sequence[int], height: int, width: int) -> Mask:
    """Read the run lengths of COCO: a list, or its compressed text; runs go down the columns.

    Examples
    --------
    >>> coco_mask("5240O", 4, 4).ends.tolist(), coco_mask([5, 2, 4, 2, 3], 4, 4).area
    ([5, 7, 11, 13, 16], 4.0)
    """
    _check_size(height, width)
    lengths = _uncompressed(counts) if isinstance(counts, str) else list(counts)
    if any(n < 0 for n in lengths):
        raise DataError("run lengths of a mask are never negative")
    total = sum(lengths)
    if total != height * width:
        raise DataError(f"run lengths of a mask add up to {total}, its size is {height} x {width}")
    return Mask(height, width, np.cumsum(np.array(lengths, dtype=np.int64)), True)


def _check_size(height: int, width: int) -> None:
    if height < 0 or width < 0 or height * width > _MOST_PIXELS:
        raise DataError(f"a mask of {height} x {width} pixels cannot be")


def _uncompressed(text: str) -> list[int]:
    """Five bits a character, lowest first; from the fourth value on, differences to that two before."""
    values: list[int] = []
    value = shift = 0
    for letter in text:
        bits = ord(letter) - 48
        if not 0 <= bits < 64 or shift > 60:
            raise DataError(f"{letter!r} cannot stand in a compressed mask")
        value |= (bits & 0x1F) << shift
        shift += 5
        if bits & 0x20:
            continue
        if bits & 0x10:
            value -= 1 << shift
        values.append(value + values[-2] if len(values) > 2 else value)
        value = shift = 0
    if shift:
        raise DataError("a compressed mask ends within a number")
    return values


class _Bits:
    """A stream of bits, the most significant first."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place, self.end = content, 0, _BITS * len(content)

    def take(self, n: int) -> int:
        if self.place + n > self.end:
            raise DataError("a brush mask ends too early")
        first, last = self.place // _BITS, (self.place + n + _BITS - 1) // _BITS
        value = int.from_bytes(self.content[first:last], "big")
        value >>= _BITS * last - self.place - n
        self.place += n
        return value & ((1 << n) - 1)


def brush_mask(rle: Sequence[int], height: int, width: int) -> Mask:
    """Read a brush stroke of Label Studio: four values a pixel, row by row; the fourth says whether it is in.

    Examples
    --------
    >>> mask = brush_mask([0, 0, 0, 16, 57, 27, 252, 96, 17, 255, 206, 0], 2, 2)
    >>> mask.contains(np.array([0.5, 1.5]), np.array([0.5, 0.5])).tolist()
    [False, True]
    """
    _check_size(height, width)
    try:
        bits = _Bits(bytes(rle))
    except (ValueError, TypeError):
        raise DataError("a brush mask is a list of bytes, 0 to 255") from None
    n_values = bits.take(32)
    if n_values != 4 * height * width:
        raise DataError(f"a brush mask of {n_values} values does not fit {width} x {height} pixels of four")
    word = bits.take(5) + 1
    sizes = [bits.take(4) + 1 for _ in range(4)]
    ends, inside, place = [0], False, 0  # the first run is outside and may be empty
    while place < n_values:
        is_run = bits.take(1)
        count = bits.take(sizes[bits.take(2)]) + 1
        if place + count > n_values:
            raise DataError(f"a brush mask holds more than the {n_values} values that it declares")
        for length in [count] if is_run else [1] * count:
            value, after = bits.take(word) > 0, place + length
            pixels = after // 4 - place // 4  # of these values, those that are the fourth of a pixel
            place = after
            if pixels and value != inside:
                ends.append(ends[-1])
                inside = value
            ends[-1] += pixels
    return Mask(height, width, np.array(ends, dtype=np.int64), False)
