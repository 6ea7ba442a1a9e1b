"""Recordings, pictures, documents and slides with known truth: what tutorials, tests and measurements use.

Each function fills a folder with files, writes a table ``file,labels`` of what occurs in each file (all that
a learner is shown) and returns the truth: what occurs where. The same seed gives the same files.
"""

from __future__ import annotations

import csv
import struct
import wave
import zlib
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits

from bagwise.errors import OptionalDependencyError
from bagwise.utils.files import replacing

__all__ = ["SPECIES", "TEXTURES", "TOPICS", "Truth"]
__all__ += ["make_collages", "make_documents", "make_recordings", "make_slides"]

File = str | PathLike[str]


class Truth(NamedTuple):
    """What occurs where.

    Parameters
    ----------
    labels : dict of str to list of str
        Labels of each file, by its name in the folder.
    spans : list of dict
        One per call, picture, sentence or tile: ``file``, ``label``, and its place in the columns of
        `bagwise.media.places`.
    """

    labels: dict[str, list[str]]
    spans: list[dict[str, Any]]


def filled(
    folder: File,
    stem: str,
    suffix: str,
    n_files: int,
    make: Callable[[Path], list[dict[str, Any]]],
    labels: File | None,
) -> Truth:
    """Files made one by one, each with the labels of what it holds, and a table ``file,labels`` of them."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    truth = Truth({}, [])
    for k in range(n_files):
        name = f"{stem}_{k:03d}{suffix}"
        spans = make(root / name)
        truth.labels[name] = sorted({span["label"] for span in spans})
        truth.spans.extend({"file": name, **span} for span in spans)
    if labels is not None:
        with replacing(labels) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["file", "labels"])
            writer.writerows([name, ";".join(found)] for name, found in truth.labels.items())
    return truth


# ----------------------------------------------------------------------
# Recordings of chirps by ten species


class Species(NamedTuple):
    """A call: from one frequency to another (Hz), as one sweep or so many notes, in so many seconds."""

    low: float
    high: float
    rising: bool
    notes: int
    seconds: float


# Two of each pair share a band and differ in shape, so that the band alone does not tell them apart.
SPECIES = {
    "bunting": Species(900, 1500, True, 1, 0.5),
    "crake": Species(900, 1500, False, 5, 0.6),
    "dipper": Species(1900, 2700, True, 1, 0.35),
    "finch": Species(1900, 2700, False, 1, 0.7),
    "lark": Species(3200, 4200, True, 6, 0.7),
    "pipit": Species(3200, 4200, False, 2, 0.4),
    "robin": Species(4800, 6000, True, 2, 0.6),
    "siskin": Species(4800, 6000, False, 1, 0.3),
    "thrush": Species(6800, 8400, True, 1, 0.6),
    "wren": Species(6800, 8400, False, 8, 0.8),
}


def make_recordings(
    folder: File,
    n_files: int = 100,
    *,
    labels: File | None = None,
    seconds: float = 8.0,
    calls: tuple[int, int] = (3, 7),
    noise: float = 0.05,
    rate: int = 22_050,
    random_state: int = 0,
) -> Truth:
    """Recordings (WAV, 16 bit) of chirps by ten species, overlapping in time, in noise.

    Parameters
    ----------
    folder : path
        Where to write ``recording_000.wav``, ...
    n_files : int, default=100
        Number of recordings.
    labels : path, optional
        CSV file of the species in each recording.
    seconds : float, default=8.0
        Length of a recording.
    calls : pair of int, default=(3, 7)
        Fewest and most calls in a recording. Calls of the same band never overlap.
    noise : float, default=0.05
        Root mean square of the noise (the loudest call has an amplitude of 0.5, the softest of 0.2).
    rate : int, default=22050
        Samples per second.
    random_state : int, default=0
        Seed.

    Examples
    --------
    >>> import tempfile
    >>> truth = make_recordings(tempfile.mkdtemp(), 2)
    >>> list(truth.labels), set(truth.labels["recording_000.wav"]) <= set(SPECIES)
    (['recording_000.wav', 'recording_001.wav'], True)
    >>> sorted(truth.spans[0])
    ['end', 'file', 'high', 'label', 'low', 'start']
    """
    rng = np.random.default_rng(random_state)
    names = list(SPECIES)

    def make(path: Path) -> list[dict[str, Any]]:
        sound = noise * rng.standard_normal(int(seconds * rate))
        spans: list[dict[str, Any]] = []
        for _ in range(rng.integers(calls[0], calls[1] + 1)):
            name = names[rng.integers(len(names))]
            kind = SPECIES[name]
            start = rng.uniform(0.1, seconds - kind.seconds - 0.1)
            span = {"start": start, "end": start + kind.seconds, "low": kind.low, "high": kind.high}
            same = (s for s in spans if s["low"] == kind.low)
            if any(s["start"] <= span["end"] + 0.15 and start <= s["end"] + 0.15 for s in same):
                continue  # two calls at once in one band
            call = rng.uniform(0.2, 0.5) * _call(kind, rate, rng.uniform(0.97, 1.03))
            first = int(start * rate)
            sound[first : first + len(call)] += call
            spans.append({"label": name, **span})
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())
        return spans

    return filled(folder, "recording", ".wav", n_files, make, labels)


def _call(kind: Species, rate: int, pitch: float) -> np.ndarray:
    """A sweep, or notes that each sweep, with soft edges."""
    n = int(kind.seconds * rate / kind.notes)
    low, high = kind.low * pitch, kind.high * pitch
    a, b = (low, high) if kind.rising else (high, low)
    frequency = np.linspace(a, b, n)
    tone = np.sin(2 * np.pi * np.cumsum(frequency) / rate)
    shape = np.sin(np.pi * (np.arange(n) + 0.5) / n) ** 0.5
    if kind.notes > 1:  # a rest after each note
        shape *= np.arange(n) < 0.7 * n
    return np.tile(tone * shape, kind.notes)


# ----------------------------------------------------------------------
# Pictures glued together from textures or handwritten digits


def _grid(n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.meshgrid(np.arange(n), np.arange(n))


TEXTURES: dict[str, Callable[[int, float], np.ndarray]] = {
    "bricks": lambda n, s: (
        (_grid(n)[1] % s > 1) & ((_grid(n)[0] + s * (_grid(n)[1] // s % 2)) % (2 * s) > 1)
    ).astype(float),
    "checks": lambda n, s: (_grid(n)[0] // s + _grid(n)[1] // s) % 2,
    "dots": lambda n, s: (np.hypot(_grid(n)[0] % s - s / 2, _grid(n)[1] % s - s / 2) < s / 3).astype(float),
    "rings": lambda n, s: (
        np.sin(2 * np.pi * np.hypot(_grid(n)[0] - n / 2, _grid(n)[1] - n / 2) / s) / 2 + 0.5
    ),
    "stripes": lambda n, s: np.sin(2 * np.pi * _grid(n)[0] / s) / 2 + 0.5,
    "waves": lambda n, s: np.sin(2 * np.pi * (_grid(n)[1] + s / 2 * np.sin(_grid(n)[0] / s)) / s) / 2 + 0.5,
}


def make_collages(
    folder: File,
    n_files: int = 120,
    *,
    labels: File | None = None,
    kind: str = "textures",
    patch: int = 64,
    patches: int = 3,
    random_state: int = 0,
) -> Truth:
    """Pictures (PNG) glued together from square patches: textures, or handwritten digits.

    Parameters
    ----------
    folder : path
        Where to write ``picture_000.png``, ...
    n_files : int, default=120
        Number of pictures.
    labels : path, optional
        CSV file of what each picture shows.
    kind : {"textures", "digits"}, default="textures"
        What patches show. A third of them show plain noise.
    patch : int, default=64
        Pixels of the side of a patch.
    patches : int, default=3
        Patches along the side of a picture.
    random_state : int, default=0
        Seed.

    Examples
    --------
    >>> import tempfile
    >>> truth = make_collages(tempfile.mkdtemp(), 2)
    >>> list(truth.labels), set(truth.labels["picture_000.png"]) <= set(TEXTURES)
    (['picture_000.png', 'picture_001.png'], True)
    """
    rng = np.random.default_rng(random_state)
    draw = _digit_drawer(rng, patch) if kind == "digits" else _texture_drawer(rng, patch)

    def make(path: Path) -> list[dict[str, Any]]:
        side = patch * patches
        picture = np.clip(rng.normal(110, 18, (side, side, 3)), 0, 255)
        chosen = draw(None)  # a few that this picture is made of
        spans = []
        for row in range(patches):
            for column in range(patches):
                if rng.random() < 1 / 3:
                    continue
                label, square = draw(chosen[rng.integers(len(chosen))])
                x, y = column * patch, row * patch
                picture[y : y + patch, x : x + patch] = square
                box = {"x": float(x), "y": float(y), "width": float(patch), "height": float(patch)}
                spans.append({"label": label, **box})
        write_png(path, picture.astype(np.uint8))
        return spans

    return filled(folder, "picture", ".png", n_files, make, labels)


def _texture_drawer(rng: np.random.Generator, n: int) -> Callable[[Any], Any]:
    names = list(TEXTURES)

    def draw(name: Any) -> Any:
        if name is None:
            return list(rng.choice(names, rng.integers(1, 4), replace=False))
        pattern = TEXTURES[name](n, float(rng.integers(8, 13)))
        dark, light = rng.uniform(0, 90, 3), rng.uniform(150, 255, 3)
        square = dark + pattern[:, :, None] * (light - dark)
        return str(name), np.clip(square + rng.normal(0, 8, square.shape), 0, 255)

    return draw


def _digit_drawer(rng: np.random.Generator, n: int) -> Callable[[Any], Any]:
    images, target = load_digits(return_X_y=True)
    where = (np.arange(n) * 10 // n)[:, None], (np.arange(n) * 10 // n)[None, :]

    def draw(digit: Any) -> Any:
        if digit is None:
            return list(rng.choice(10, rng.integers(1, 4), replace=False))
        image = np.pad(images[rng.choice(np.flatnonzero(target == digit))].reshape(8, 8), 1) / 16
        square = 40 + 190 * image[where][:, :, None] * np.ones(3)
        return str(digit), np.clip(square + rng.normal(0, 8, square.shape), 0, 255)

    return draw


def write_png(path: File, picture: np.ndarray) -> None:
    """Write a picture (height, width, 3) of uint8 as PNG, without any library."""
    height, width, _ = picture.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), picture.reshape(height, -1)], axis=1)

    def chunk(name: bytes, content: bytes) -> bytes:
        check = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)) + chunk(b"IEND", b"")
    Path(path).write_bytes(b"\x89PNG\r\n\x1a\n" + body)


# ----------------------------------------------------------------------
# Documents mixed from topics


TOPICS = {
    "cooking": "oven butter flour garlic simmer recipe onion sauce dough pepper boil soup taste pan salt",
    "football": "goal striker referee penalty league coach match defender kick stadium corner team cup foul",
    "gardening": "soil seeds pruning roses compost lawn roots tulips watering shrub weeds hedge bulbs",
    "money": "bank interest loan shares inflation market budget savings tax credit profit price debt bond",
    "music": "violin chord melody orchestra rhythm choir piano concert singer drums album tempo song guitar",
    "space": "planet orbit telescope rocket galaxy moon comet astronaut gravity star satellite launch mars",
}
_PLAIN = "today people often little again place always many later still much early together began found soon"


def make_documents(
    folder: File,
    n_files: int = 120,
    *,
    labels: File | None = None,
    sentences: tuple[int, int] = (4, 9),
    random_state: int = 0,
) -> Truth:
    """Documents (text) whose sentences are each about one of six topics, or about none.

    Parameters
    ----------
    folder : path
        Where to write ``document_000.txt``, ...
    n_files : int, default=120
        Number of documents.
    labels : path, optional
        CSV file of the topics of each document.
    sentences : pair of int, default=(4, 9)
        Fewest and most sentences of a document.
    random_state : int, default=0
        Seed.

    Examples
    --------
    >>> import tempfile
    >>> truth = make_documents(tempfile.mkdtemp(), 2)
    >>> list(truth.labels), set(truth.labels["document_000.txt"]) <= set(TOPICS)
    (['document_000.txt', 'document_001.txt'], True)
    """
    rng = np.random.default_rng(random_state)
    words = {topic: text.split() for topic, text in TOPICS.items()}
    plain = _PLAIN.split()

    def make(path: Path) -> list[dict[str, Any]]:
        chosen = rng.choice(list(words), rng.integers(1, 4), replace=False)
        text, spans = "", []
        for k in range(rng.integers(sentences[0], sentences[1] + 1)):
            topic = "" if rng.random() < 0.25 else str(rng.choice(chosen))
            own = rng.choice(words[topic], rng.integers(2, 5), replace=False).tolist() if topic else []
            said = own + rng.choice(plain, rng.integers(4, 8), replace=False).tolist()
            rng.shuffle(said)
            sentence = " ".join(["The", *said]) + "."
            text += "" if not text else "\n\n" if k % 3 == 0 else " "
            if topic:
                place = {"start_char": len(text), "end_char": len(text) + len(sentence), "text": sentence}
                spans.append({"label": topic, **place})
            text += sentence
        path.write_bytes(f"{text}\n".encode())
        return spans

    return filled(folder, "document", ".txt", n_files, make, labels)


# ----------------------------------------------------------------------
# Embeddings of tiles of slides


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
        tile = {"width": size, "height": size, "level": 0}
        found = ((findings[kind - 1], x, y) for kind, (x, y) in zip(kinds, coords) if kind)
        return [{"label": label, "x": float(x), "y": float(y), **tile} for label, x, y in found]

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
