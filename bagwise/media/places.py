"""Where instances lie in the files they were cut from: columns of ``bags.instance_info``.

==========  ==============================================================================
all         ``file``: path relative to the gathered folder, with ``/`` between folders
audio       ``start``, ``end`` in seconds; ``low``, ``high`` in Hz
image       ``x``, ``y``, ``width``, ``height`` in pixels of the upright picture, from its top left
            corner; superpixels also ``polygon``: ``"x,y x,y ..."`` as SVG writes points
text        ``start_char``, ``end_char`` (exclusive) in the decoded text; ``text``
slide       ``x``, ``y``, ``width``, ``height`` in pixels of level 0, from the top left; ``level``
==========  ==============================================================================

Exports, drawings and pages ask here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bagwise.errors import DataError

__all__ = [
    "AudioPlaces",
    "ImagePlaces",
    "SlidePlaces",
    "TextPlaces",
    "audio_places",
    "image_places",
    "medium_of",
    "place_columns",
    "slide_places",
    "text_places",
]


class AudioPlaces(NamedTuple):
    """Spans of time and frequency."""

    file: np.ndarray
    start: np.ndarray
    end: np.ndarray
    low: np.ndarray
    high: np.ndarray


class ImagePlaces(NamedTuple):
    """Boxes in upright pictures and, for superpixels, their outlines."""

    file: np.ndarray
    x: np.ndarray
    y: np.ndarray
    width: np.ndarray
    height: np.ndarray
    polygon: np.ndarray | None = None


class TextPlaces(NamedTuple):
    """Spans of characters and what they say."""

    file: np.ndarray
    start_char: np.ndarray
    end_char: np.ndarray
    text: np.ndarray


class SlidePlaces(NamedTuple):
    """Tiles of slides, in pixels of level 0."""

    file: np.ndarray
    x: np.ndarray
    y: np.ndarray
    width: np.ndarray
    height: np.ndarray
    level: np.ndarray


_KINDS: dict[str, type] = {
    "audio": AudioPlaces,
    "text": TextPlaces,
    "slide": SlidePlaces,  # before pictures, whose columns it has as well
    "image": ImagePlaces,
}
_NUMBERS = {"start_char": np.int64, "end_char": np.int64, "level": np.int64}
_TEXTS = ("file", "text", "polygon")


def medium_of(info: Mapping[str, Any]) -> str | None:
    """Medium that instances were cut from, by the columns of ``instance_info``; None if they have no place.

    Examples
    --------
    >>> medium_of({"file": ["a.wav"], "start": [0.0], "end": [3.0], "low": [0.0], "high": [24000.0]})
    'audio'
    >>> medium_of({"file": ["a.npy"]}) is None
    True
    """
    return next((medium for medium in _KINDS if set(_needed(medium)) <= set(info)), None)


def place_columns(medium: str) -> dict[str, Any]:
    """Columns of a medium and the type of each: float64, int64 or ``object`` for text.

    Examples
    --------
    >>> list(place_columns("audio"))
    ['file', 'start', 'end', 'low', 'high']
    """
    return {name: object if name in _TEXTS else _NUMBERS.get(name, np.float64) for name in _fields(medium)}


def audio_places(info: Mapping[str, Any]) -> AudioPlaces:
    """Spans of recordings.

    Examples
    --------
    >>> info = {"file": ["a.wav"], "start": [0], "end": [3], "low": [0], "high": [24000]}
    >>> audio_places(info).end
    array([3.])
    """
    return _places("audio", info)


def image_places(info: Mapping[str, Any]) -> ImagePlaces:
    """Boxes of pictures; ``polygon`` is None for a grid."""
    return _places("image", info)


def text_places(info: Mapping[str, Any]) -> TextPlaces:
    """Spans of texts."""
    return _places("text", info)


def slide_places(info: Mapping[str, Any]) -> SlidePlaces:
    """Tiles of slides."""
    return _places("slide", info)


def _places(medium: str, info: Mapping[str, Any]) -> Any:
    missing = [name for name in _needed(medium) if name not in info]
    if missing:
        known = ", ".join(info) or "nothing"
        raise DataError(
            f"these instances have no place in {medium}: {', '.join(missing)} missing among what is known of "
            f"them ({known}); gather them from files with bagwise.media"
        )
    kinds = place_columns(medium)
    return _KINDS[medium](
        **{name: np.asarray(info[name], dtype=kinds[name]) for name in _fields(medium) if name in info}
    )


def _fields(medium: str) -> tuple[str, ...]:
    return _KINDS[medium]._fields  # type: ignore[attr-defined]


def _needed(medium: str) -> tuple[str, ...]:
    kind = _KINDS[medium]
    return tuple(name for name in _fields(medium) if name not in kind._field_defaults)  # type: ignore
