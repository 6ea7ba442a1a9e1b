"""Pairs of instances by tensors, block by block."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'bagwise[torch]')")

from bagwise.models._shared import gpu  # noqa: E402


def test_blocks_that_do_not_fit_are_halved():
    seen = []

    def block(a, b):
        if b - a > 2:
            raise torch.cuda.OutOfMemoryError
        seen.append((a, b))

    gpu._over_blocks(block, np.arange(0, 20, 2), 10**6)
    assert seen == sorted(seen) and sum(b - a for a, b in seen) == 9
