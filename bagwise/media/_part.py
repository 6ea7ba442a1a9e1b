"""One bag as a medium makes it, and a file that gave none."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Part(NamedTuple):
    """One bag: its instances, and where each lies.

    Parameters
    ----------
    X : float32 array or CSR of shape (n_instances, n_features)
        Descriptions of the instances.
    places : mapping of str to array
        Columns of `bagwise.media.places` without ``file``, which the base adds; the same for all parts.
    notes : tuple of str
        What was guessed or left out in reading, as the rest of a sentence about the file: "is not UTF-8; read
        as Windows-1252". Files with the same note are named together in one warning.
    """

    X: Any
    places: dict[str, np.ndarray]
    notes: tuple[str, ...] = ()


class NamedPart(NamedTuple):
    """A part under the name of its bag, and the file it was cut from: "" for things in memory."""

    name: str
    file: str
    part: Part


class Unreadable(NamedTuple):
    """A file that gave no bag, and why."""

    path: str
    reason: str
