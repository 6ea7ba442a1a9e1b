"""Text in arrays."""

from __future__ import annotations

import numpy as np

__all__ = ["as_text"]


def as_text(values: np.ndarray) -> np.ndarray:
    """Python strings as NumPy text; as they are beside None, or where one long one would widen all."""
    if not all(isinstance(v, str) for v in values):
        return values
    lengths = [len(v) for v in values]
    if max(lengths, default=0) * len(values) > 64 * sum(lengths) + (1 << 20):
        return values
    return values.astype(str)
