"""A folder of ``.npy`` files and one JSON file of facts; opens as memory maps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.errors import DataError
from bagwise.utils.files import replacing


def save_arrays(folder: str | Path, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
    """Write the arrays and the facts; an existing folder is replaced only when all is written."""
    with replacing(folder) as temporary:
        temporary.mkdir()
        names = {}
        for k, (name, array) in enumerate(arrays.items()):
            if array.dtype == object:  # text; pickles are never written
                array = array.astype(str)
            names[name] = f"{k:02d}.npy"
            np.save(temporary / names[name], array, allow_pickle=False)
        (temporary / "facts.json").write_text(json.dumps({"arrays": names, "facts": facts}), encoding="utf-8")


def open_arrays(folder: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Map the arrays of `save_arrays` into memory, read-only."""
    folder = Path(folder)
    try:
        content = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
        arrays = {}
        for name, file in content["arrays"].items():
            place = folder / Path(file).name  # never leaves the folder
            arrays[name] = _load(place)
        return arrays, content["facts"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"not a folder of saved bags ({error})", path=folder) from None


def _load(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError:  # an empty array cannot be mapped
        return np.load(path, allow_pickle=False)
