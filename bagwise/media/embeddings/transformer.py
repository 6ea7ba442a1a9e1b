"""Features made elsewhere to bags: slides, folders of arrays, tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from bagwise.base.parameters import Anything, Choice, Number
from bagwise.errors import DataError
from bagwise.media.base import COMMON, ToBags
from bagwise.media.embeddings.files import open_h5, open_npy, open_npz, open_pt, open_safetensors, open_zarr
from bagwise.media.embeddings.layout import Stored, all_finite, parts_of
from bagwise.media.embeddings.tables import SUFFIXES as TABLES
from bagwise.media.embeddings.tables import parts_of_table
from bagwise.media.parts import Part

__all__ = ["EmbeddingsToBags"]

_OPEN: dict[str, Callable[[str], dict[str, Stored]]] = {
    ".h5": open_h5,
    ".hdf5": open_h5,
    ".npy": open_npy,
    ".npz": open_npz,
    ".safetensors": open_safetensors,
    ".pt": open_pt,
    ".pth": open_pt,
    ".zarr": open_zarr,
}


class EmbeddingsToBags(ToBags):
    """Embeddings that another program made to bags: one file per bag, or one file with many.

    Takes HDF5 (the layouts of CLAM and TRIDENT among them), NumPy's ``.npy`` and ``.npz``, safetensors,
    torch's ``.pt`` (with ``weights_only=True``: nothing in it is run), zarr, tables (Parquet, CSV) with a
    list of numbers per row, and in memory arrays of shape (instances, features) or mappings
    ``{"features": ..., "coords": ...}``. Arrays that lie in their file as they are get mapped, not
    copied. Where there are coordinates each instance knows its place: ``x``, ``y``, ``width``, ``height``
    in pixels of level 0 from the top left, and ``level``.

    Parameters
    ----------
    features : str, optional
        Name of the array (or column) of features; by default "features", "feats", "embeddings", "embedding",
        "feature", "X" or "data", else the tables that the file holds.
    coords : str, optional
        Name of the array (or column) of coordinates; by default "coords", "coordinates" or the like. Columns
        are x and y, or x, y, width and height.
    tile_size : float, optional
        Side of a tile in pixels of level 0. By default what the file says (``patch_size_level0`` of TRIDENT,
        ``patch_size`` times ``downsample`` of CLAM), else the distance between tiles, and that is said.
    id_column : str, optional
        Column of a table that names the bags; by default "bag_id", "slide_id", "file" or the like.
    n_jobs, cache
        As in the other media; reading embeddings is as fast as a cached copy, so neither is used.

    Attributes
    ----------
    n_features_out_ : int
        Number of features of an instance.

    Notes
    -----
    A file that is one bag gives a bag called like the file; of a file with several (groups, ``features``
    with ``offsets``, rows of a table) each is called ``file#name``. Numbers of half precision become
    float32. A slide without tiles is a bag without instances.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.media import EmbeddingsToBags
    >>> slide = {"features": np.ones((2, 4), np.float16), "coords": [[0, 0], [256, 0]]}
    >>> bags = EmbeddingsToBags(tile_size=256).fit_transform([slide])
    >>> bags.X.dtype, bags.instance_info["x"], bags.instance_info["width"]
    (dtype('float32'), array([  0., 256.]), array([256., 256.]))
    """

    medium = "embeddings"
    suffixes = tuple(_OPEN)
    also = TABLES
    cheap: ClassVar[bool] = True
    may_be_empty: ClassVar[bool] = True
    _parameters = {
        "features": (Choice(None), Anything("the name of an array")),
        "coords": (Choice(None), Anything("the name of an array")),
        "tile_size": (Choice(None), Number(above=0)),
        "id_column": (Choice(None), Anything("the name of a column")),
        **COMMON,
    }

    def __init__(
        self, *, features=None, coords=None, tile_size=None, id_column=None, n_jobs=None, cache=None
    ):
        self.features = features
        self.coords = coords
        self.tile_size = tile_size
        self.id_column = id_column
        self.n_jobs = n_jobs
        self.cache = cache

    def _part(self, source: Any) -> Part:
        parts = self._parts(source)
        if len(parts) != 1:
            raise DataError(f"expected one bag, found {len(parts)}")
        return parts[0][1]

    def _parts(self, source: Any) -> list[tuple[str, Part]]:
        parts = self._found(source)
        for name, part in parts:
            if part.X.size and not all_finite(part.X):
                raise DataError(f"{name}: features are not finite".removeprefix(": "))
        return parts

    def _found(self, source: Any) -> list[tuple[str, Part]]:
        if not isinstance(source, (str, PathLike)):
            given = source if isinstance(source, Mapping) else {"features": source}
            values = {str(name): np.asarray(value) for name, value in given.items()}
            arrays = {name: Stored(a.shape, a.dtype.kind, a.view) for name, a in values.items()}
            return parts_of(arrays, self.features, self.coords, self.tile_size)
        path = os.fspath(source)
        if not os.path.exists(path):
            raise DataError("no such file")
        suffix = os.path.splitext(path.lower())[1]
        if suffix in TABLES:
            return parts_of_table(path, self.features, self.coords, self.id_column, self.tile_size)
        if suffix not in _OPEN:
            raise DataError(f"is no file of embeddings ({' '.join((*_OPEN, *TABLES))})")
        if os.path.isdir(path) != (suffix == ".zarr"):
            raise DataError("is a folder" if os.path.isdir(path) else "is no zarr folder")
        return parts_of(_OPEN[suffix](path), self.features, self.coords, self.tile_size)
