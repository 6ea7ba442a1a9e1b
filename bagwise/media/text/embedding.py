"""Sentences to vectors: by a function, or by a model of model2vec or sentence-transformers.

Nothing is ever downloaded here: a name is looked up among the models that are on this machine already.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.errors import DataError, OptionalDependencyError

__all__ = ["embedded", "embedder"]


def embedder(embedding: str | Callable[[list[str]], Any]) -> Callable[[list[str]], Any]:
    """The function itself, or that of the model with this name or in this folder."""
    return _by_name(os.fspath(embedding)) if isinstance(embedding, (str, os.PathLike)) else embedding


def embedded(texts: list[str], embedding: str | Callable[[list[str]], Any]) -> np.ndarray:
    """Vectors of some texts as float32, checked.

    Examples
    --------
    >>> embedded(["a", "bird"], lambda texts: [[len(text)] for text in texts])
    array([[1.],
           [4.]], dtype=float32)
    """
    X = np.asarray(embedder(embedding)(texts))
    if X.ndim != 2 or len(X) != len(texts) or X.dtype.kind not in "fiu":
        raise DataError(
            f"embedding= should give a row of numbers for each of {len(texts)} texts, gave {X.dtype} of "
            f"shape {X.shape}"
        )
    return np.ascontiguousarray(X, dtype=np.float32)


@lru_cache(maxsize=4)
def _by_name(name: str) -> Callable[[list[str]], Any]:
    folder = Path(name) if os.path.isdir(name) else _cached_folder(name)
    try:
        kind = json.loads((folder / "config.json").read_text("utf-8")).get("model_type")
    except (OSError, ValueError, AttributeError):
        kind = None
    if kind == "model2vec":
        if find_spec("model2vec") is None:
            raise OptionalDependencyError(f"the model {name!r} needs model2vec: pip install model2vec")
        from model2vec import StaticModel

        return StaticModel.from_pretrained(str(folder)).encode
    if find_spec("sentence_transformers") is None:
        raise OptionalDependencyError(
            f"the model {name!r} needs sentence-transformers: pip install sentence-transformers"
        )
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), local_files_only=True)
    return lambda texts: model.encode(texts, show_progress_bar=False, convert_to_numpy=True)


def _cached_folder(name: str) -> Path:
    """Folder of a model that the Hugging Face tools have fetched before."""
    if find_spec("huggingface_hub") is None:
        raise OptionalDependencyError(
            f"{name!r} is no folder, and without huggingface_hub no model is known by name; "
            "pip install model2vec (or sentence-transformers), or give the model's folder"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, OSError, ValueError):
        raise DataError(
            f"the model {name!r} is not on this machine, and nothing is downloaded by itself; "
            f"fetch it first (hf download {name}), or give its folder"
        ) from None
