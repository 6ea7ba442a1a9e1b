"""TIFF files that Pillow does not take (16 bits of colour, or very large), read segment by segment."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bagwise.errors import DataError, OptionalDependencyError

__all__ = ["Reduced", "read_tiff"]

_MAX_SEGMENT = 1 << 28  # bytes of one strip or tile
_BUFFER = 1 << 24  # bytes read ahead
_MAX_FULL = 1 << 36  # pixels: beyond this a header is taken for damaged


class Reduced(NamedTuple):
    """Pixels between 0 and 1, and width and height before they were reduced."""

    pixels: np.ndarray
    full: tuple[int, int]


def read_tiff(file: Any, max_side: int) -> tuple[Reduced, int, bool]:
    """The first page reduced to ``max_side``, by which factor, and whether there are more pages."""
    try:
        import tifffile
    except ImportError:
        raise OptionalDependencyError(
            "this TIFF needs tifffile, which comes with scikit-image: pip install 'bagwise[image]'"
        ) from None
    with tifffile.TiffFile(file) as tiff:
        page: Any = tiff.pages[0]
        height, width, channels = _checked_shape(page)
        several = len(tiff.pages) > 1 and not getattr(tiff.pages[1], "is_reduced", False)
        factor = math.ceil(max(height, width) / max_side)
        sums = np.zeros((math.ceil(height / factor), math.ceil(width / factor), channels))
        for segment, index, _ in _segments(page):
            if segment is None:
                continue  # a hole: nothing was written there
            top, left = index[-3], index[-2]
            inside = segment.reshape(segment.shape[-3:])[: height - top, : width - left]  # tiles overhang
            _add(sums, inside, top, left, factor)
        levels = float(np.iinfo(page.dtype).max) if page.dtype.kind == "u" else 1.0
        if getattr(page, "photometric", 2) == 0:  # white is zero
            sums = None if sums is None else levels * _counts(sums.shape, height, width, factor) - sums
        pixels = (sums / _counts(sums.shape, height, width, factor) / levels).astype(np.float32)
    if channels in (2, 4):
        alpha = pixels[:, :, -1:]
        pixels = pixels[:, :, :-1] * alpha + (1 - alpha)
    if pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    return Reduced(np.ascontiguousarray(np.clip(pixels, 0, 1)), (width, height)), factor, several


def _segments(page: Any) -> Any:
    """Strips or tiles in the order of the file, few of them at a time."""
    try:
        return page.segments(sort=True, maxworkers=1, buffersize=_BUFFER)
    except TypeError:  # tifffile of before 2024 chooses how much it reads ahead
        return page.segments(sort=True, maxworkers=1)


def _checked_shape(page: Any) -> tuple[int, int, int]:
    height, width, channels = int(page.imagelength), int(page.imagewidth), int(page.samplesperpixel)
    if height < 1 or width < 1 or height * width > _MAX_FULL:
        raise DataError(f"declares {width} x {height} pixels")
    if page.dtype is None or not (page.dtype.kind == "u" and page.dtype.itemsize <= 2):
        raise DataError(f"holds pixels of type {page.dtype}; 8 and 16 bits are read")
    if channels > 4 or int(page.planarconfig) != 1 or int(getattr(page, "imagedepth", 1)) != 1:
        raise DataError(f"has {channels} channels in an order that is not read; save it as RGB")
    if int(page.photometric) not in (0, 1, 2):
        raise DataError(f"has colours of kind {int(page.photometric)} that are not read; save it as RGB")
    segment = int(np.prod(page.chunks, dtype=np.float64)) * page.dtype.itemsize
    if segment > _MAX_SEGMENT:
        raise DataError(f"has strips of {segment:,} bytes; save it in tiles")
    return height, width, channels


def _add(sums: np.ndarray, segment: np.ndarray, top: int, left: int, factor: int) -> None:
    """Add a segment to the sums of the squares that it touches."""
    for axis, start in ((0, top), (1, left)):
        first = np.arange(start, start + segment.shape[axis])
        cuts = np.flatnonzero(np.diff(first // factor, prepend=-1))
        segment = np.add.reduceat(segment, cuts, axis=axis, dtype=np.float64)
    rows, columns = top // factor, left // factor
    sums[rows : rows + segment.shape[0], columns : columns + segment.shape[1]] += segment


def _counts(shape: tuple[int, ...], height: int, width: int, factor: int) -> np.ndarray:
    tall = np.minimum(np.arange(1, shape[0] + 1) * factor, height) - np.arange(shape[0]) * factor
    wide = np.minimum(np.arange(1, shape[1] + 1) * factor, width) - np.arange(shape[1]) * factor
    return (tall[:, None] * wide[None, :])[:, :, None]
