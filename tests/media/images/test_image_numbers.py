"""Colour moments, binary patterns and histograms of gradients against slow, plain NumPy."""

import math

import numpy as np
import pytest

from bagwise.media import ImagesToBags
from bagwise.media.images.describe import GROUPS, Cut, describe, feature_names, grid, outlines, superpixels

pytest.importorskip("PIL")
pytest.importorskip("skimage")


@pytest.fixture(scope="module")
def picture():
    rng = np.random.default_rng(0)
    rgb = rng.random((23, 31, 3)).astype(np.float32)
    rgb[:6, :9] = 0.5  # a flat piece: all neighbours equal, no gradient
    rgb[10:, 5] = (1, 0, 0)
    return rgb


def parts_of(cut):
    for k, box in enumerate(cut.boxes):
        ys, xs = np.nonzero(cut.labels == k)
        yield k, box, ys, xs


def slow_colour(rgb, ys, xs):
    r, g, b = (rgb[ys, xs, c].astype(float) for c in range(3))
    out = []
    for v in (0.299 * r + 0.587 * g + 0.114 * b, r - g, (r + g) / 2 - b):
        m = v.mean()
        out += [m, math.sqrt(((v - m) ** 2).mean()), np.cbrt(((v - m) ** 3).mean())]
    return out


def grey_of(rgb):
    w = np.array([0.299, 0.587, 0.114], dtype=np.float32)
    return (w[0] * rgb[..., 0] + w[1] * rgb[..., 1]) + w[2] * rgb[..., 2]


def slow_texture(grey, ys, xs):
    out = []
    for radius in (1, 2):
        padded = np.pad(grey, radius, mode="edge")
        histogram = np.zeros(10)
        for y, x in zip(ys + radius, xs + radius):
            ring = [(-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1)]
            bits = [bool(padded[y + radius * a, x + radius * b] >= padded[y, x]) for a, b in ring]
            changes = sum(bits[k] != bits[k - 1] for k in range(8))
            histogram[sum(bits) if changes <= 2 else 9] += 1
        out += list(histogram / len(ys))
    return out


def slow_gradients(grey, box, ys, xs):
    padded = np.pad(grey.astype(float), 1, mode="edge")
    left, top, right, bottom = box
    histogram = np.zeros((2, 2, 9))
    for y, x in zip(ys, xs):
        gx = (padded[y + 1, x + 2] - padded[y + 1, x]) / 2
        gy = (padded[y + 2, x + 1] - padded[y, x + 1]) / 2
        angle = math.degrees(math.atan2(gy, gx)) % 180
        down, across = y + 0.5 > (top + bottom) / 2, x + 0.5 > (left + right) / 2
        for k in range(9):  # a triangle of 20 degrees to both sides of the centre of each bin
            apart = abs(angle - (20 * k + 10))
            weight = max(0, 1 - min(apart, 180 - apart) / 20)
            histogram[int(down), int(across), k] += weight * math.hypot(gx, gy)
    flat = histogram.ravel() / len(ys)
    return [*(flat / math.sqrt((flat**2).sum() + 0.01**2)), flat.sum()]


@pytest.mark.parametrize("kind", ["coarse", "fine", "regions"])
def test_numbers_are_those_of_plain_numpy(picture, kind):
    if kind == "regions":
        labels = np.zeros(picture.shape[:2], dtype=np.int32)
        labels[3:20, 4:17] = 1
        labels[8:12, 10:31] = 2
        boxes = [[0, 0, 31, 23], [4, 3, 17, 20], [10, 8, 31, 12]]
        cut = Cut(labels, np.array(boxes))
    else:
        cut = grid(23, 31, 2 if kind == "coarse" else 5)
    X = describe(picture, [cut])
    grey = grey_of(picture)
    assert X.shape == (len(cut.boxes), 69) and X.dtype == np.float32 and np.isfinite(X).all()
    for k, box, ys, xs in parts_of(cut):
        slow = slow_colour(picture, ys, xs) + slow_texture(grey, ys, xs) + slow_gradients(grey, box, ys, xs)
        centre = [(box[0] + box[2]) / 62, (box[1] + box[3]) / 46, math.sqrt(len(ys) / (23 * 31))]
        np.testing.assert_allclose(X[k], slow + centre, atol=2e-4)


def test_groups_are_columns_of_the_whole(picture):
    cut = grid(23, 31, 3)
    whole, names = describe(picture, [cut]), feature_names(GROUPS)
    assert len(set(names)) == 69
    for group in GROUPS:
        columns = [names.index(name) for name in feature_names([group])]
        assert np.array_equal(describe(picture, [cut], [group]), whole[:, columns])


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (40, 3), (7, 64)])
def test_grids_cover_every_pixel_once(shape):
    for cells in (1, 3, 8):
        cut = grid(*shape, cells)
        covered = np.full(shape, -1)
        for k, (left, top, right, bottom) in enumerate(cut.boxes):
            assert right > left and bottom > top
            covered[top:bottom, left:right] = k
        assert np.array_equal(covered, cut.labels)
        assert np.isfinite(describe(np.random.default_rng(0).random((*shape, 3)), [cut])).all()


def test_superpixels_follow_colours_and_outlines_enclose_them():
    rgb = np.zeros((60, 80, 3), dtype=np.float32)
    rgb[:, 40:] = (1, 1, 0)
    rgb[20:40, 10:30] = (0, 0, 1)
    cut = superpixels(rgb, 30, 10.0)
    assert len(cut.boxes) > 5
    kind = rgb.argmax(axis=2) + rgb.any(axis=2)  # black, blue, yellow
    same = [np.bincount(kind[cut.labels == k]).max() for k in range(len(cut.boxes))]
    assert sum(same) > 0.95 * kind.size
    from skimage.draw import polygon2mask

    for k, points in enumerate(outlines(cut, 1.0, 1.0)):
        corners = np.array([[float(v) for v in point.split(",")] for point in points.split()])
        assert corners.min() >= 0 and (corners.max(axis=0) <= [80, 60]).all()
        inside = polygon2mask((60, 80), corners[:, ::-1] - 0.5)
        truth = cut.labels == k
        assert (inside & truth).sum() > 0.85 * truth.sum()  # holes are not drawn


def test_a_bag_of_superpixels_has_outlines(picture):
    bags = ImagesToBags("superpixels", n_superpixels=9).fit_transform([picture])
    assert "polygon" in bags.instance_info and bags.n_features == 69
    assert ImagesToBags("superpixels").fit_transform([np.zeros((2, 2))]).sizes.tolist() == [1]
