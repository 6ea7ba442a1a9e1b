"""Embeddings of tiles of slides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bagwise.datasets.media._files import File, Truth, filled
from bagwise.errors import OptionalDependencyError


def make_slides(
    folder: File,
    n_files: int = 80,
    *,
    labels: File | None = None,
    n_features: int = 64,
    tiles: tuple[int, int] = (150, 400),
    suffix: str = ".h5",
    random_state: int = 0,
) -> Truth:
    """Embeddings of slides: ``features`` and ``coords`` of tiles, most of them of normal tissue.

    Parameters
    ----------
    folder : path
        Where to write ``slide_000.h5``, ...
    n_files : int, default=80
        Number of slides.
    labels : path, optional
        CSV file of the findings in each slide; slides without any have an empty cell.
    n_features : int, default=64
        Numbers per tile.
    tiles : pair of int, default=(150, 400)
        Fewest and most tiles of a slide.
    suffix : {".h5", ".npz"}, default=".h5"
        H5 files in the layout of CLAM and TRIDENT need h5py; npz files of the same arrays need nothing.
    random_state : int, default=0
        Seed.

    Examples
    --------
    >>> import tempfile
    >>> truth = make_slides(tempfile.mkdtemp(), 2, suffix=".npz")
    >>> list(truth.labels)
    ['slide_000.npz', 'slide_001.npz']
    """
    rng = np.random.default_rng(random_state)
    findings = ["inflammation", "necrosis", "tumour"]
    size = 256
    centres = np.random.default_rng(1234).normal(0, 1.0, (4, n_features))  # the same tissue in every folder

    def make(path: Path) -> list[dict[str, Any]]:
        n = int(rng.integers(tiles[0], tiles[1] + 1))
        side = int(np.ceil(np.sqrt(n)))
        cells = np.argwhere(np.ones((side, side), bool))[:n]
        kinds = np.zeros(n, dtype=np.int64)
        for kind in np.flatnonzero(rng.random(3) < 0.4) + 1:  # a patch of tiles side by side
            middle = cells[rng.integers(n)]
            kinds[np.hypot(*(cells - middle).T) < rng.uniform(1.5, 3.0)] = kind
        X = (centres[kinds] + rng.normal(0, 1.0, (n, n_features))).astype(np.float32)
        coords = (cells[:, ::-1] * size).astype(np.int64)
        _write_tiles(path, X, coords, size)
        return [
            {
                "label": findings[kind - 1],
                "x": float(x),
                "y": float(y),
                "width": size,
                "height": size,
                "level": 0,
            }
            for kind, (x, y) in zip(kinds, coords)
            if kind
        ]

    return filled(folder, "slide", suffix, n_files, make, labels)


def _write_tiles(path: Path, X: np.ndarray, coords: np.ndarray, size: int) -> None:
    if path.suffix == ".npz":
        np.savez(path, features=X, coords=coords)
        return
    try:
        import h5py
    except ImportError:
        raise OptionalDependencyError("H5 files need h5py: pip install 'bagwise[slides]'") from None
    with h5py.File(path, "w") as file:
        file["features"], file["coords"] = X, coords
        file["coords"].attrs["patch_size"] = size
        file["coords"].attrs["patch_level"] = 0
