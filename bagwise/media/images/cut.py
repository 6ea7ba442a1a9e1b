"""Parts of a picture: cells of a grid at several scales, or superpixels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bagwise.errors import OptionalDependencyError

__all__ = ["Cut", "grid", "outlines", "superpixels"]


class Cut(NamedTuple):
    """A part of every pixel (int32 map) and the box of each part: left, top, right, bottom (exclusive)."""

    labels: np.ndarray
    boxes: np.ndarray


def grid(height: int, width: int, cells: int) -> Cut:
    """About square cells, ``cells`` of them along the longer side.

    Examples
    --------
    >>> grid(2, 4, 4).labels
    array([[0, 1, 2, 3],
           [4, 5, 6, 7]], dtype=int32)
    """
    longest = max(height, width)
    down = min(max(round(cells * height / longest), 1), height)
    across = min(max(round(cells * width / longest), 1), width)
    ys = np.round(np.linspace(0, height, down + 1)).astype(np.int64)
    xs = np.round(np.linspace(0, width, across + 1)).astype(np.int64)
    row = np.repeat(np.arange(down, dtype=np.int32), np.diff(ys))
    column = np.repeat(np.arange(across, dtype=np.int32), np.diff(xs))
    left, top = np.meshgrid(xs[:-1], ys[:-1])
    right, bottom = np.meshgrid(xs[1:], ys[1:])
    boxes = np.column_stack([left.ravel(), top.ravel(), right.ravel(), bottom.ravel()])
    return Cut(row[:, None] * np.int32(across) + column[None, :], boxes)


def superpixels(rgb: np.ndarray, n: int, compactness: float) -> Cut:
    """Regions of like colour by SLIC, about ``n`` of them."""
    try:
        from skimage.segmentation import slic
    except ImportError:
        raise OptionalDependencyError("superpixels need scikit-image: pip install 'bagwise[image]'") from None
    height, width = rgb.shape[:2]
    n = min(n, max(height * width // 16, 1))  # no region of a few pixels
    if n == 1 or min(height, width) < 4:
        labels = np.zeros((height, width), dtype=np.int32)
    else:
        found = slic(rgb, n_segments=n, compactness=compactness, sigma=1, start_label=0)
        _, inverse = np.unique(found, return_inverse=True)
        labels = inverse.reshape(height, width).astype(np.int32)
    return Cut(labels, _boxes(labels))


def _boxes(labels: np.ndarray) -> np.ndarray:
    from scipy.ndimage import find_objects

    found = find_objects(labels + 1)
    return np.array([[x.start, y.start, x.stop, y.stop] for y, x in found], dtype=np.int64)


def outlines(cut: Cut, scale_x: float, scale_y: float) -> np.ndarray:
    """Outline of every part as SVG writes points, in pixels times the scales.

    The line runs between the pixels of the part and the others; of a part with holes the outer line is given.
    """
    from skimage.measure import approximate_polygon, find_contours

    out = np.empty(len(cut.boxes), dtype=object)
    for k, (left, top, right, bottom) in enumerate(cut.boxes.tolist()):
        inside = np.pad(cut.labels[top:bottom, left:right] == k, 1).astype(np.float32)
        line = max(find_contours(inside, 0.5), key=len)
        corners = approximate_polygon(line, tolerance=0.8)[:-1]
        if len(corners) < 3:
            corners = line[:-1]
        points = (corners + (top - 0.5, left - 0.5)) * (scale_y, scale_x)
        out[k] = " ".join(f"{x:.6g},{y:.6g}" for y, x in points)
    return out
