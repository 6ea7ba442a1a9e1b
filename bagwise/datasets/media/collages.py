"""Pictures glued together from textures or handwritten digits."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.datasets.media._files import File, Truth, filled


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
    from sklearn.datasets import load_digits

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
        return (
            struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)) + chunk(b"IEND", b"")
    Path(path).write_bytes(b"\x89PNG\r\n\x1a\n" + body)
