"""Small things that all of looking shares."""

from __future__ import annotations

from typing import Any

import numpy as np

UNKNOWN = -1  # in a matrix of what is known of labels


def number_or_none(value: Any) -> float | None:
    """A number for JSON, to four digits; None where there is none."""
    value = float(value)
    return round(value, 4) if np.isfinite(value) else None
