"""All pairs of instances by tensors, against the compiled loops and plain sums."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'bagwise[torch]')")

from bagwise.models._shared import gpu as pairs_torch  # noqa: E402
from bagwise.models.distance.kernels import KINDS, hausdorff_distances  # noqa: E402
from bagwise.models.svm.kernels import set_kernel  # noqa: E402

CARD = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))


def two_sets(seed=0):
    rng = np.random.default_rng(seed)
    sets = []
    for n_bags in (17, 11):
        offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 9, n_bags))])
        sets += [rng.normal(size=(offsets[-1], 4)) + 5.0, offsets]
    return sets


@pytest.mark.parametrize("device", ["cpu", CARD])
@pytest.mark.parametrize("rows", [1, 20, 10**6])
def test_kernel_sums(device, rows, monkeypatch):
    X, offsets, Z, z_offsets = two_sets()
    monkeypatch.setattr(pairs_torch, "_CELLS", rows * len(Z))
    rng = np.random.default_rng(1)
    u, v = rng.random(len(X)), rng.random(len(Z))
    tolerance = 1e-10 if device == "cpu" else 1e-4
    where = torch.device(device)
    got = pairs_torch.kernel_sums(X, offsets, u, Z, z_offsets, v, 0.3, where)
    expected = set_kernel(X, offsets, u, Z, z_offsets, v, gamma=0.3)
    np.testing.assert_allclose(got, expected, rtol=tolerance)
    pair = [np.exp(-0.3 * ((x - z) ** 2).sum()) * p * q for x, p in zip(X, u) for z, q in zip(Z, v)]
    np.testing.assert_allclose(got.sum(), np.sum(pair), rtol=tolerance)
    own = pairs_torch.kernel_sums(X, offsets, u, None, None, None, 0.3, where)
    np.testing.assert_allclose(own, set_kernel(X, offsets, u, gamma=0.3), rtol=tolerance)


@pytest.mark.parametrize("device", ["cpu", CARD])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 20, 10**6])
def test_hausdorff(device, kind, rows, monkeypatch):
    X, offsets, Z, z_offsets = two_sets(2)
    monkeypatch.setattr(pairs_torch, "_CELLS", 2 * rows * len(Z))
    Z[3] = X[5]
    where = torch.device(device)
    got = pairs_torch.hausdorff(X, offsets, Z, z_offsets, kind, where)
    np.testing.assert_allclose(got, hausdorff_distances(X, offsets, Z, z_offsets, kind=kind), atol=1e-6)
    own = pairs_torch.hausdorff(X, offsets, None, None, kind, where)
    np.testing.assert_allclose(own, hausdorff_distances(X, offsets, kind=kind), atol=1e-6)


def test_blocks_that_do_not_fit_are_halved():
    seen = []

    def block(a, b):
        if b - a > 2:
            raise torch.cuda.OutOfMemoryError
        seen.append((a, b))

    pairs_torch._over_blocks(block, np.arange(0, 20, 2), 10**6)
    assert seen == sorted(seen) and sum(b - a for a, b in seen) == 9
