"""Hausdorff distances by tensors, against the compiled loops."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'bagwise[torch]')")

from toy_bags import two_sets  # noqa: E402

from bagwise.models._shared import gpu  # noqa: E402
from bagwise.models.distance.kernels import KINDS, hausdorff_distances  # noqa: E402

GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 20, 10**6])
def test_hausdorff(device, kind, rows, monkeypatch):
    X, offsets, Z, z_offsets = two_sets(2)
    monkeypatch.setattr(gpu, "_CELLS", 2 * rows * len(Z))
    Z[3] = X[5]
    where = torch.device(device)
    got = gpu.hausdorff(X, offsets, Z, z_offsets, kind, where)
    np.testing.assert_allclose(got, hausdorff_distances(X, offsets, Z, z_offsets, kind=kind), atol=1e-6)
    own = gpu.hausdorff(X, offsets, None, None, kind, where)
    np.testing.assert_allclose(own, hausdorff_distances(X, offsets, kind=kind), atol=1e-6)
