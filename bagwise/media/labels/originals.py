"""What exports need to know of the original files; None where they are not at hand or cannot be read."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np

_TURNED = (5, 6, 7, 8)  # EXIF orientations that exchange width and height
_ORIENTATION = 0x0112


def picture_size(path: str | None) -> tuple[int, int] | None:
    """Width and height of the upright picture, from its header alone."""
    if path is None:
        return None
    try:
        from PIL import Image

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as picture:
                width, height = picture.size
                turned = picture.getexif().get(_ORIENTATION) in _TURNED
    except Exception:  # whatever a damaged file or a missing library may say, there is another way
        return None
    return (height, width) if turned else (width, height)


def sound_length(path: str | None) -> float | None:
    """Seconds of a recording, from its header alone."""
    if path is None:
        return None
    try:
        import soundfile

        about = soundfile.info(path)
        return about.frames / about.samplerate if about.frames > 0 and about.samplerate > 0 else None
    except Exception:
        return None


def sound_rate(path: str | None) -> float | None:
    """Samples per second of a recording."""
    if path is None:
        return None
    try:
        import soundfile

        return float(soundfile.info(path).samplerate) or None
    except Exception:
        return None


def extent(places: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """Width and height that the parts of a picture reach, at least one pixel."""
    if not len(places["x"]):
        return 1.0, 1.0
    width = float(np.max(places["x"] + places["width"]))
    height = float(np.max(places["y"] + places["height"]))
    return max(width, 1.0), max(height, 1.0)


def text_of_parts(places: Mapping[str, np.ndarray]) -> str:
    """A text put together from its parts, each at its place; what lies between them is blank.

    Examples
    --------
    >>> places = {"start_char": np.array([0, 5]), "end_char": np.array([3, 8])}
    >>> text_of_parts({**places, "text": np.array(["One", "two"])})
    'One  two'
    """
    length = int(max(places["end_char"], default=0))
    letters = [" "] * length
    for start, end, piece in zip(places["start_char"], places["end_char"], places["text"]):
        letters[int(start) : int(end)] = str(piece)[: int(end) - int(start)].ljust(int(end) - int(start))
    return "".join(letters)


def full_text(path: str | None, places: Mapping[str, np.ndarray]) -> tuple[str, bool]:
    """The decoded text to which the places refer, and whether it is the original: it must fit the parts."""
    pieces = text_of_parts(places)
    if path is None:
        return pieces, False
    try:
        from bagwise.io._source import read_bytes
        from bagwise.media.text.decode import decode
        from bagwise.media.text.html import strip_html

        text = decode(read_bytes(path, 1 << 28)).text
        for candidate in (text, strip_html(text)):
            spans = zip(places["start_char"].tolist(), places["end_char"].tolist(), places["text"])
            if all(candidate[a:b] == piece for a, b, piece in spans):
                return candidate, True
    except Exception:
        return pieces, False
    return pieces, False
