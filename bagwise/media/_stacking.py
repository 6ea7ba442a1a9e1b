"""Parts of many sources in one: matrices, places and notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.errors import DataError, DataWarning, warn
from bagwise.media._part import NamedPart, Part

NAMED = 5  # files that a message names


def width_of(parts: Sequence[Part]) -> int:
    """Number of features of the first part that has instances."""
    return next((int(p.X.shape[1]) for p in parts if p.X.shape[0]), max(int(p.X.shape[1]) for p in parts))


def stacked(matrices: list[Any], width: int) -> Any:
    filled = [X for X in matrices if X.shape[0]]
    if any(sparse.issparse(X) for X in matrices):
        if not filled:
            return sparse.csr_array((0, width), dtype=np.float32)
        return sparse.vstack([sparse.csr_array(X) for X in filled], format="csr")
    # half precision becomes single while it is copied
    kind = np.result_type(np.float32, *(X.dtype for X in filled))
    if len(filled) == 1:
        return np.ascontiguousarray(filled[0], dtype=kind)
    out = np.empty((sum(len(X) for X in filled), width), dtype=kind)
    start = 0
    for X in filled:
        out[start : start + len(X)] = X
        start += len(X)
    return out


def say_notes(named: Sequence[NamedPart]) -> None:
    """One warning per kind of note, with the files that it is about."""
    about: dict[str, list[str]] = {}
    for one in named:
        for note in one.part.notes:
            about.setdefault(note, []).append(one.name)
    for note, names in about.items():
        more = "" if len(names) <= NAMED else f" and {len(names) - NAMED} more"
        warn(f"{', '.join(names[:NAMED])}{more}: {note}", DataWarning)


def stacked_places(names: Sequence[str], parts: Sequence[Part]) -> dict[str, np.ndarray]:
    """Columns of all parts; they must be the same, but a bag without instances may have none."""
    filled = [(name, part) for name, part in zip(names, parts) if part.X.shape[0]]
    filled = filled or [(names[0], parts[0])]
    first, columns = filled[0][0], list(filled[0][1].places)
    for name, part in filled:
        if list(part.places) != columns:
            raise DataError(
                f"the instances of {name} come with {', '.join(part.places) or 'no place'}, those of {first} "
                f"with {', '.join(columns) or 'no place'}; gather them apart"
            )
    return {c: np.concatenate([np.asarray(part.places[c]) for _, part in filled]) for c in columns}
