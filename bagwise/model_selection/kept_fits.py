"""Finished fits of a comparison as files, so that a stopped one goes on where it was."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.bags import MultiViewBags
from bagwise.model_selection.comparison import Fit
from bagwise.utils.files import replacing


@dataclass
class KeptFits:
    """Finished fits as files, named by everything that decides them."""

    folder: str | PathLike[str] | None
    bags: Any
    targets: np.ndarray
    instance_Y: Any
    cv: int
    seed: int

    def __post_init__(self) -> None:
        if self.folder is None:
            return
        digest = hashlib.sha256(f"{self.cv} {self.seed}".encode())
        views = self.bags.views.values() if isinstance(self.bags, MultiViewBags) else [self.bags]
        for view in views:
            X = view.X
            parts = (X.data, X.indices, X.indptr) if view.is_sparse else (X,)
            for array in (*parts, view.offsets):
                digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        digest.update(repr(self.targets.tolist()).encode())
        if self.instance_Y is not None:
            digest.update(np.ascontiguousarray(self.instance_Y).tobytes())
        self.data = digest.hexdigest()

    def _path(self, name: str, model: Any, repeat: int, fold: int) -> Path:
        # the printed form of an estimator shows every parameter that is not a default
        described = f"{self.data} {name} {model!r} {repeat} {fold}"
        return Path(str(self.folder)) / f"{hashlib.sha256(described.encode()).hexdigest()[:24]}.json"

    def get(self, name: str, model: Any, repeat: int, fold: int) -> Fit | None:
        """A fit that was kept; one that failed, or a damaged file, counts as not there."""
        if self.folder is None:
            return None
        path = self._path(name, model, repeat, fold)
        try:
            fit = Fit(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return None if fit.error else fit

    def put(self, key: tuple[str, int, int], model: Any, fit: Fit) -> None:
        """Keep a fit; the file appears whole or not at all."""
        if self.folder is None:
            return
        with replacing(self._path(key[0], model, *key[1:])) as path:
            path.write_text(json.dumps(fit.__dict__), encoding="utf-8")
