"""From raw things to bags with places, and answers back beside the raw things.

`AudioToBags`, `ImagesToBags`, `TextToBags` and `EmbeddingsToBags` are scikit-learn transformers that take
paths (or arrays, or strings) and give `Bags`; `gather` makes a data set from folders of files and a table of
labels. The libraries that decode files are imported when a file is read.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_LAZY = {
    "AudioToBags": "bagwise.media.audio",
    "EmbeddingsToBags": "bagwise.media.embeddings",
    "ImagesToBags": "bagwise.media.images",
    "Source": "bagwise.media.parts",
    "TextToBags": "bagwise.media.text",
    "find_files": "bagwise.media.parts",
    "gather": "bagwise.media.gathering",
}

if TYPE_CHECKING:
    from bagwise.media.audio import AudioToBags
    from bagwise.media.embeddings import EmbeddingsToBags
    from bagwise.media.gathering import gather
    from bagwise.media.images import ImagesToBags
    from bagwise.media.parts import Source, find_files
    from bagwise.media.text import TextToBags

__all__ = ["AudioToBags", "EmbeddingsToBags", "ImagesToBags", "Source", "TextToBags", "find_files", "gather"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'bagwise.media' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
