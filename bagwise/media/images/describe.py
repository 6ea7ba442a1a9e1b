"""Parts of a picture, cells of a grid or superpixels, and the numbers that describe them.

=============  ===  ==========================================================================================
``colour``     9    mean, spread (standard deviation) and skew (cube root of the third central moment) of
                    grey, of red minus green, and of yellow minus blue
``texture``    20   shares of the ten uniform local binary patterns, rotation not counted (0 to 8 neighbours
                    not darker, 9 for all others), with neighbours at a distance of one and of two pixels
``gradients``  37   directions of edges in nine bins of 20 degrees for each quarter of the part, weighted by
                    their strength and scaled to length one; the mean strength
``position``   3    centre (0 to 1 from the left and from the top) and size: the square root of the share of
                    the picture's area
=============  ===  ==========================================================================================

Beyond the picture's edge its outermost pixels go on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.ndimage import find_objects

from bagwise.compute.aligned import frozen
from bagwise.compute.compiled import kernel
from bagwise.errors import optional

__all__ = ["GROUPS", "Cut", "describe", "feature_names", "grid", "outlines", "superpixels"]


class Cut(NamedTuple):
    """A part of every pixel (int32 map) and the box of each part: left, top, right, bottom (exclusive)."""

    labels: np.ndarray
    boxes: np.ndarray


def grid(height: int, width: int, cells: int) -> Cut:
    """About square cells, ``cells`` of them along the longer side."""
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
    skimage = optional("skimage.segmentation", "superpixels need scikit-image: pip install 'bagwise[image]'")
    height, width = rgb.shape[:2]
    n = min(n, max(height * width // 16, 1))  # no region of a few pixels
    if n == 1 or min(height, width) < 4:
        labels = np.zeros((height, width), dtype=np.int32)
    else:
        found = skimage.slic(rgb, n_segments=n, compactness=compactness, sigma=1, start_label=0)
        _, inverse = np.unique(found, return_inverse=True)
        labels = inverse.reshape(height, width).astype(np.int32)
    boxes = [[x.start, y.start, x.stop, y.stop] for y, x in find_objects(labels + 1)]
    return Cut(labels, np.array(boxes, dtype=np.int64))


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


# ---------------------------------------------------------------------- numbers


GROUPS = ("colour", "texture", "gradients", "position")
RADII = (1, 2)
BINS = 9
PATTERNS = 10
_FLAT = 0.01  # mean strength of edges below which their directions fade to zero: noise has directions too


def feature_names(groups: Sequence[str]) -> list[str]:
    """Names in the order of the columns."""
    names = {
        "colour": [
            f"{c} {m}" for c in ("grey", "red-green", "yellow-blue") for m in ("mean", "spread", "skew")
        ],
        "texture": [f"texture {r} px, pattern {k}" for r in RADII for k in range(PATTERNS)],
        "gradients": [
            f"edges {quarter}, {20 * k + 10} degrees"
            for quarter in ("top left", "top right", "bottom left", "bottom right")
            for k in range(BINS)
        ]
        + ["edge strength"],
        "position": ["centre x", "centre y", "size"],
    }
    return [name for group in GROUPS if group in groups for name in names[group]]


def describe(rgb: np.ndarray, cuts: Sequence[Cut], groups: Sequence[str] = GROUPS) -> np.ndarray:
    """One row per part of every cut, float32."""
    height, width = rgb.shape[:2]
    rgb = frozen(rgb.astype(np.float32, copy=False))
    grey = np.empty((height, width), dtype=np.float32)
    _grey(rgb, grey)
    grey = frozen(grey)
    patterns = np.empty((len(RADII), height, width), dtype=np.uint8)
    edges = np.empty((2, height, width), dtype=np.float32)
    if "texture" in groups:
        for k, radius in enumerate(RADII):
            _patterns(grey, radius, _uniform(), patterns[k])
    if "gradients" in groups:
        _edges(grey, edges)
    blocks = []
    for cut in cuts:
        n = len(cut.boxes)
        columns = []
        if "colour" in groups:
            sums = np.zeros((n, 3, 4))
            _colour_sums(rgb, grey, frozen(cut.labels), sums)
            columns.append(_moments(sums))
        if "texture" in groups:
            counts = np.zeros((n, len(RADII), PATTERNS))
            for k in range(len(RADII)):
                _pattern_counts(frozen(patterns[k]), frozen(cut.labels), counts[:, k])
            columns.append((counts / counts.sum(axis=2, keepdims=True)).reshape(n, -1))
        if "gradients" in groups:
            columns.append(_directions(edges, cut))
        if "position" in groups:
            columns.append(_position(cut, height, width))
        blocks.append(np.hstack(columns))
    return np.vstack(blocks).astype(np.float32)


def _moments(sums: np.ndarray) -> np.ndarray:
    """Mean, spread and skew from the sums of powers 0 to 3."""
    m1, m2, m3 = (sums[:, :, k] / sums[:, :, 0] for k in (1, 2, 3))
    variance = np.maximum(m2 - m1 * m1, 0)
    third = m3 - 3 * m1 * m2 + 2 * m1**3
    third[np.abs(third) < 1e-12] = 0  # what rounding leaves of a flat part
    variance[variance < 1e-12] = 0
    return np.stack([m1, np.sqrt(variance), np.cbrt(third)], axis=2).reshape(len(sums), -1)


def _directions(edges: np.ndarray, cut: Cut) -> np.ndarray:
    n = len(cut.boxes)
    middle = cut.boxes[:, :2] + cut.boxes[:, 2:]  # twice the centre, x and y
    sums = np.zeros((n, 4, BINS))
    counts = np.zeros(n)
    _direction_sums(frozen(edges), frozen(cut.labels), frozen(middle), sums, counts)
    flat = sums.reshape(n, -1) / counts[:, None]
    strength = flat.sum(axis=1, keepdims=True)
    length = np.sqrt((flat * flat).sum(axis=1, keepdims=True) + _FLAT**2)
    return np.hstack([flat / length, strength])


def _position(cut: Cut, height: int, width: int) -> np.ndarray:
    n = len(cut.boxes)
    area = np.bincount(cut.labels.ravel(), minlength=n)
    left, top, right, bottom = cut.boxes.T
    return np.column_stack(
        [(left + right) / (2 * width), (top + bottom) / (2 * height), np.sqrt(area / (height * width))]
    )


def _uniform() -> np.ndarray:
    """Pattern of each of the 256 answers of eight neighbours: how many, if they stand together, else 9."""
    answers = (np.arange(256)[:, None] >> np.arange(8)) & 1
    changes = (answers != np.roll(answers, 1, axis=1)).sum(axis=1)
    return frozen(np.where(changes <= 2, answers.sum(axis=1), 9).astype(np.uint8))


@kernel
def _grey(rgb, out):
    """Brightness as the eye weighs it (BT.601)."""
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            light = np.float32(0.299) * rgb[y, x, 0] + np.float32(0.587) * rgb[y, x, 1]
            out[y, x] = light + np.float32(0.114) * rgb[y, x, 2]


@kernel
def _patterns(grey, radius, uniform, out):
    """Local binary pattern of every pixel: which of eight neighbours on a square are not darker."""
    height, width = grey.shape
    for y in range(height):
        up, down = max(y - radius, 0), min(y + radius, height - 1)
        for x in range(width):
            left, right = max(x - radius, 0), min(x + radius, width - 1)
            centre = grey[y, x]
            code = np.int64(grey[up, left] >= centre)
            code |= np.int64(grey[up, x] >= centre) << 1
            code |= np.int64(grey[up, right] >= centre) << 2
            code |= np.int64(grey[y, right] >= centre) << 3
            code |= np.int64(grey[down, right] >= centre) << 4
            code |= np.int64(grey[down, x] >= centre) << 5
            code |= np.int64(grey[down, left] >= centre) << 6
            code |= np.int64(grey[y, left] >= centre) << 7
            out[y, x] = uniform[code]


@kernel
def _edges(grey, out):
    """Strength of the gradient, and its direction without sign in units of a bin, from 0 to 9."""
    height, width = grey.shape
    for y in range(height):
        up, down = max(y - 1, 0), min(y + 1, height - 1)
        for x in range(width):
            gx = (grey[y, min(x + 1, width - 1)] - grey[y, max(x - 1, 0)]) / np.float32(2)
            gy = (grey[down, x] - grey[up, x]) / np.float32(2)
            out[0, y, x] = math.sqrt(gx * gx + gy * gy)
            angle = math.atan2(gy, gx) if out[0, y, x] > 0 else 0.0
            if angle < 0:
                angle += math.pi
            out[1, y, x] = angle * BINS / math.pi


@kernel
def _colour_sums(rgb, grey, labels, sums):
    """Sums of powers 0 to 3 of the three colour channels in every part."""
    for y in range(labels.shape[0]):
        for x in range(labels.shape[1]):
            part = labels[y, x]
            red, green, blue = np.float64(rgb[y, x, 0]), np.float64(rgb[y, x, 1]), np.float64(rgb[y, x, 2])
            for c in range(3):
                if c == 0:
                    v = np.float64(grey[y, x])
                elif c == 1:
                    v = red - green
                else:
                    v = (red + green) / 2 - blue
                sums[part, c, 0] += 1
                sums[part, c, 1] += v
                sums[part, c, 2] += v * v
                sums[part, c, 3] += v * v * v


@kernel
def _pattern_counts(patterns, labels, counts):
    for y in range(labels.shape[0]):
        for x in range(labels.shape[1]):
            counts[labels[y, x], patterns[y, x]] += 1


@kernel
def _direction_sums(edges, labels, middle, sums, counts):
    """Strength by direction in each quarter of every part, shared between the two nearest bins."""
    for y in range(labels.shape[0]):
        for x in range(labels.shape[1]):
            part = labels[y, x]
            quarter = np.int64(2 * x + 1 > middle[part, 0]) + 2 * np.int64(2 * y + 1 > middle[part, 1])
            counts[part] += 1
            position = edges[1, y, x] - 0.5
            low = math.floor(position)
            share = position - low
            strength = edges[0, y, x]
            sums[part, quarter, np.int64(low) % BINS] += strength * (1 - share)
            sums[part, quarter, np.int64(low + 1) % BINS] += strength * share
