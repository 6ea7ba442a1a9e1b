"""Kernels of sets by tensors, against the compiled loops and plain sums."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'bagwise[torch]')")

from toy_bags import two_sets  # noqa: E402

from bagwise.models._shared import gpu  # noqa: E402
from bagwise.models.svm.kernels import set_kernel  # noqa: E402

GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("rows", [1, 20, 10**6])
def test_kernel_sums(device, rows, monkeypatch):
    X, offsets, Z, z_offsets = two_sets()
    monkeypatch.setattr(gpu, "_CELLS", rows * len(Z))
    rng = np.random.default_rng(1)
    u, v = rng.random(len(X)), rng.random(len(Z))
    tolerance = 1e-10 if device == "cpu" else 1e-4
    where = torch.device(device)
    got = gpu.kernel_sums(X, offsets, u, Z, z_offsets, v, 0.3, where)
    expected = set_kernel(X, offsets, u, Z, z_offsets, v, gamma=0.3)
    np.testing.assert_allclose(got, expected, rtol=tolerance)
    pair = [np.exp(-0.3 * ((x - z) ** 2).sum()) * p * q for x, p in zip(X, u) for z, q in zip(Z, v)]
    np.testing.assert_allclose(got.sum(), np.sum(pair), rtol=tolerance)
    own = gpu.kernel_sums(X, offsets, u, None, None, None, 0.3, where)
    np.testing.assert_allclose(own, set_kernel(X, offsets, u, gamma=0.3), rtol=tolerance)
