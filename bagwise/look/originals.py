"""The recordings and pictures that bags were cut from: found by the number of a bag, never by a path.

What may be opened are files that the data name, of a suffix of their medium, that lie in the folder of the
originals (or were read from raw files just now). A name that leads out of the folder, by ``..`` or by a link,
finds nothing.
"""

from __future__ import annotations

import io
import struct
import wave
import zlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.errors import BagwiseError, DataError
from bagwise.look.answers import Recent
from bagwise.media.audio.decode import open_recording
from bagwise.media.audio.describe import make_grid, spectra
from bagwise.media.images.decode import read_picture
from bagwise.media.labels.answers import picture_size
from bagwise.media.places import medium_of
from bagwise.media.recipe import transformer_class

if TYPE_CHECKING:
    from bagwise.look.session import Session


SOUNDS = {
    ".wav": "audio/wav",
    ".wave": "audio/wav",
    ".flac": "audio/flac",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".oga": "audio/ogg",
    ".opus": "audio/ogg",
}
PICTURES = {
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
}
_MOST_FOLDERS = 100  # beside the data, in which originals are looked for
_WIDEST = 4_000  # columns of a spectrogram
_TALLEST = 256  # rows of it
_LONGEST = 30 * 60.0  # seconds of a recording that is written anew for browsers
_LARGEST = 2_048  # pixels of the longer side of a picture that is written anew
_KEPT = 24  # spectrograms and pictures remembered
_QUIETEST = 60.0  # decibels below the loudest that are drawn black
# 256 colours from night blue over violet and orange to pale yellow, ever brighter
_STOPS = [[8, 12, 26], [48, 24, 92], [132, 38, 110], [212, 78, 72], [248, 160, 58], [252, 246, 190]]
_AT = np.linspace(0, 255, len(_STOPS))
_GLOW = np.stack([np.interp(np.arange(256), _AT, c) for c in zip(*_STOPS)], axis=1).astype(np.uint8)


class Originals:
    """Files behind the bags of a session."""

    def __init__(self, session: Session, paths: dict[str, str] | None = None) -> None:
        self.session, self.paths = session, dict(paths or {})
        self.medium = medium_of(session.bags.instance_info)
        self._kept = Recent(_KEPT, session.mutex)

    def path(self, number: int) -> Path | None:
        """Where the original of a bag lies; None where it is not at hand."""
        bags = self.session.bags
        if self.medium not in ("audio", "image") or not bags.sizes[number]:
            return None
        name = str(bags.instance_info["file"][bags.offsets[number]])
        if Path(name).suffix.lower() not in transformer_class(self.medium).suffixes:
            return None
        if name in self.paths:
            own = Path(self.paths[name])
            return own if own.is_file() else None
        for root in self.roots:
            try:
                found = (root / name).resolve()
                if found.is_relative_to(root) and found.is_file():
                    return found
            except (OSError, ValueError, RuntimeError):  # a loop of links, a null in a name
                continue
        return None

    @cached_property
    def roots(self) -> list[Path]:
        """Folders to look in: that of the data or of ``originals``, then the folders in it."""
        root = self.session.root
        if root is None or not root.is_dir():
            return []
        inside = sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())
        return [root.resolve(), *(path.resolve() for path in inside[:_MOST_FOLDERS])]

    # ------------------------------------------------------------------ sound

    def facts(self, number: int) -> dict[str, Any]:
        """Length and highest frequency of a recording, size of a picture; empty if it is not at hand."""
        path = self.path(number)
        if path is None:
            return {}
        try:
            return self._kept.get(("facts", number), lambda: self._facts(path))
        except (BagwiseError, OSError, ImportError, RuntimeError, ValueError):
            return {}

    def _facts(self, path: Path) -> dict[str, Any]:
        if self.medium == "audio":
            import soundfile

            about = soundfile.info(str(path))
            seconds = about.frames / about.samplerate
            if seconds > 48 * 3600:  # a stream, whose length was not known when its header was written
                return {}
            return {"seconds": seconds, "top": about.samplerate / 2, "at_hand": True}
        size = picture_size(str(path))
        return {} if size is None else {"width": size[0], "height": size[1], "at_hand": True}

    def sound(self, number: int) -> tuple[Path | bytes, str]:
        """The recording as a file that browsers play, or as WAV where they do not play its format."""
        path = self._needed(number, "audio")
        suffix = path.suffix.lower()
        if suffix in SOUNDS:
            return path, SOUNDS[suffix]
        return self._kept.get(("sound", number), lambda: _as_wav(path)), "audio/wav"

    def spectrogram(self, number: int) -> bytes:
        """Loudness over time and frequency as a PNG, dark to bright."""
        path = self._needed(number, "audio")
        return self._kept.get(("spectrogram", number), lambda: png(shaded(spectrogram(path)), _GLOW))

    # ------------------------------------------------------------------ pictures

    def picture(self, number: int) -> tuple[Path | bytes, str]:
        """The picture as a file that browsers show, or as JPEG where they do not show its format."""
        path = self._needed(number, "image")
        suffix = path.suffix.lower()
        if suffix in PICTURES:
            return path, PICTURES[suffix]
        return self._kept.get(("picture", number), lambda: small_picture(path, _LARGEST)), "image/jpeg"

    def _needed(self, number: int, medium: str) -> Path:
        path = self.path(number) if self.medium == medium else None
        if path is None:
            raise DataError("the original is not at hand; name its folder with originals=...")
        return path


def small_picture(path: Path, side: int) -> bytes:
    """A picture of bounded size as JPEG."""
    from PIL import Image

    rgb = read_picture(path, max_side=side).rgb
    out = io.BytesIO()
    Image.fromarray((np.clip(rgb, 0, 1) * 255).astype(np.uint8)).save(out, "JPEG", quality=85)
    return out.getvalue()


def _as_wav(path: Path) -> bytes:
    rate, blocks, _ = open_recording(path)
    out, left = io.BytesIO(), int(_LONGEST * rate)
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        for block in blocks:
            part = block[:left]
            file.writeframes((np.clip(part, -1, 1) * 32767).astype("<i2").tobytes())
            left -= len(part)
            if left <= 0:
                break
    return out.getvalue()


def spectrogram(path: Path) -> np.ndarray:
    """Power over frequency (low first) and time, from 0 Hz to half the rate, of bounded size.

    Columns are spread evenly over the whole recording; each is the mean of the frames that fall into it.
    """
    import soundfile

    rate, blocks, _ = open_recording(path)
    grid = make_grid(rate, 0.0, rate / 2)
    about = soundfile.info(str(path))
    total = max(int(about.frames / about.samplerate * rate) // grid.hop, 1)
    columns = min(total, _WIDEST)
    sums, counts, done = np.zeros((columns, grid.n_bins)), np.zeros(columns), 0
    for powers, _ in spectra(blocks, grid):
        place = np.minimum((done + np.arange(len(powers))) * columns // total, columns - 1)
        np.add.at(sums, place, powers)
        counts += np.bincount(place, minlength=columns)
        done += len(powers)
    P = (sums / np.maximum(counts, 1)[:, None]).T
    # rows from 0 Hz: bins that the grid leaves out at the bottom are silent
    P = np.vstack([np.zeros((grid.first, columns)), P])
    rows = min(len(P), _TALLEST)
    edges = np.linspace(0, len(P), rows + 1).astype(int)
    return np.stack([P[a:b].mean(axis=0) for a, b in zip(edges[:-1], edges[1:])])


def shaded(P: np.ndarray) -> np.ndarray:
    """Loudness from 0 to 255, high frequencies on top; contrast between the noise floor and the loudest."""
    decibels = 10 * np.log10(np.maximum(P, 1e-20))
    loudest = float(np.percentile(decibels, 99.8))
    floor = max(float(np.percentile(decibels, 80)), loudest - _QUIETEST)
    grey = np.clip((decibels - floor) / max(loudest - floor, 1.0), 0, 1)
    return (grey[::-1] * 255).astype(np.uint8)


def png(values: np.ndarray, palette: np.ndarray) -> bytes:
    """A picture of palette numbers as PNG.

    Examples
    --------
    >>> png(np.zeros((2, 3), dtype=np.uint8), np.zeros((256, 3), dtype=np.uint8))[1:4]
    b'PNG'
    """
    height, width = values.shape

    def chunk(name: bytes, content: bytes) -> bytes:
        body = name + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    rows = np.hstack([np.zeros((height, 1), dtype=np.uint8), values])  # each row begins with "no filter"
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [
        chunk(b"IHDR", header),
        chunk(b"PLTE", palette.tobytes()),
        chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)),
        chunk(b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
