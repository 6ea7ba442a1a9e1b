"""Any picture as an upright array of red, green and blue between 0 and 1, of bounded size.

Sizes are checked in the header, before anything is decoded. Pictures whose longer side is beyond
``max_side`` are reduced by a whole factor (every pixel is the mean of a square), strip by strip; a JPEG
is reduced while it is decoded, a TIFF that Pillow does not take is read segment by segment. Places count
pixels of the original.
"""

from __future__ import annotations

import math
import warnings
from itertools import pairwise
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from bagwise.errors import DataError, OptionalDependencyError, in_one_line, optional

__all__ = ["MAX_PIXELS", "Picture", "picture_from_array", "read_picture"]

MAX_PIXELS = 178_000_000  # decoded at once by Pillow, at 4 bytes each: 0.7 GB
_STRIP = 1 << 22  # pixels converted at once
_MAX_SEGMENT = 1 << 28  # bytes of one strip or tile of a TIFF
_BUFFER = 1 << 24  # bytes read ahead
_MAX_FULL = 1 << 36  # pixels: beyond this the header of a TIFF is taken for damaged
_GREY = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
_REDUCED = "is larger than max_side={} and described at a reduced size; places count pixels of the original"
_FRAMES = "holds several frames; the first was taken"
_UPPER = "has 16 bits of each colour, of which the upper eight were taken"
_FLOAT = "holds numbers outside 0 to 1; its own smallest and largest were taken for black and white"


class Picture(NamedTuple):
    """An upright picture, perhaps reduced; ``width`` and ``height`` are those of the original, upright."""

    rgb: np.ndarray
    width: int
    height: int
    notes: tuple[str, ...] = ()


def read_picture(path: str | PathLike[str], max_side: int = 1024) -> Picture:
    """A picture from a file of any format that Pillow reads; transparent parts become white."""
    Image = optional("PIL.Image", "pictures need Pillow: pip install 'bagwise[image]'")
    try:
        with warnings.catch_warnings(), open(path, "rb") as file:
            warnings.simplefilter("ignore")  # about odd tags and large sizes, which are checked here
            return _read(Image, file, max_side)
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError("no such file", path=path) from None
    except Image.DecompressionBombError:
        raise DataError(f"declares more than {MAX_PIXELS:,} pixels; cut it into pieces first") from None
    except MemoryError:
        raise DataError("asks for more memory than there is") from None
    except Exception as error:  # decoders fail in their own ways on damaged files
        what = in_one_line(error)
        if type(error).__name__ == "UnidentifiedImageError":
            what = "of a format that Pillow does not know, or damaged"
        raise DataError(f"cannot be decoded as a picture ({what})") from None


def _read(Image: Any, file: Any, max_side: int) -> Picture:
    head = file.read(4)
    file.seek(0)
    tiff = head[:2] in (b"II", b"MM") and head[2:4] in (b"*\0", b"\0*", b"+\0", b"\0+")
    try:
        if head[:3] == b"\xff\xd8\xff":  # by its own class: a large JPEG is reduced before it is decoded
            from PIL import JpegImagePlugin

            image = JpegImagePlugin.JpegImageFile(file)
        else:
            image = Image.open(file)
        size_ok = image.size[0] * image.size[1] <= MAX_PIXELS or image.format == "JPEG"
        if not tiff or (size_ok and not _wide_colour(image)):
            return _decoded(image, max_side, _UPPER if _wide_colour(image) else None)
    except (Image.UnidentifiedImageError, Image.DecompressionBombError, OSError):
        if not tiff:
            raise
        image = None
    file.seek(0)
    try:
        return _segmented(file, max_side)
    except (MemoryError, OptionalDependencyError):
        raise
    except Exception:  # tifffile has its own ways to fail; where Pillow can, it has another try
        if image is None or not size_ok:
            raise
    file.seek(0)
    return _decoded(Image.open(file), max_side, _UPPER)


def _wide_colour(image: Any) -> bool:
    """Whether the file holds 16 bits of each colour, of which Pillow keeps eight."""
    if image.format == "PNG":
        image.fp.seek(24)
        depth = image.fp.read(1)
        return depth == b"\x10" and image.mode in ("RGB", "RGBA", "LA")
    if image.format == "TIFF":
        return image.mode in ("RGB", "RGBA", "RGBX") and max(image.tag_v2.get(258, (8,))) > 8
    return False


def _decoded(image: Any, max_side: int, note: str | None) -> Picture:
    width, height = image.size
    if width < 1 or height < 1:
        raise DataError("has no pixels")
    notes = [] if note is None else [note]
    try:  # how the camera was held, as EXIF says: 1 upright, 2 to 8 turned or mirrored
        turn = int(image.getexif().get(0x0112, 1))
    except Exception:  # damaged EXIF does not spoil the picture
        turn = 1
    turn = turn if 1 <= turn <= 8 else 1
    if image.format not in ("JPEG", "MPO") and _is_animated(image):
        notes.append(_FRAMES)
    longest = max(width, height)
    if longest > max_side and image.format == "JPEG":
        scale = max(max_side / longest, 1 / 8)
        image.draft(None, (math.ceil(width * scale), math.ceil(height * scale)))
    if image.size[0] * image.size[1] > MAX_PIXELS:
        raise DataError(
            f"declares {width} x {height} pixels, more than {MAX_PIXELS:,}; "
            "make it smaller or cut it into pieces"
        )
    image.load()
    factor = math.ceil(max(image.size) / max_side)
    rgb, stretched = _strips(image, factor)
    if factor > 1 or image.size != (width, height):
        notes.append(_REDUCED.format(max_side))
    if stretched:
        notes.append(_FLOAT)
    if turn > 4:
        width, height = height, width
    return Picture(np.ascontiguousarray(_upright(rgb, turn)), width, height, tuple(notes))


def _strips(image: Any, factor: int) -> tuple[np.ndarray, bool]:
    """The picture reduced by a factor, converted strip by strip, and whether its range had to be found."""
    width, height = image.size
    if image.mode in _GREY:
        return _grey_strips(image, factor)
    rows = max(_STRIP // width // factor, 1) * factor
    out = np.empty((math.ceil(height / factor), math.ceil(width / factor), 3), dtype=np.float32)
    for top in range(0, height, rows):
        part = image if rows >= height else image.crop((0, top, width, min(top + rows, height)))
        part = _rgb(part)
        if factor > 1:
            part = part.reduce(factor)
        pixels = np.asarray(part)
        first = top // factor
        np.multiply(pixels, np.float32(1 / 255), out=out[first : first + len(pixels)])
    return out, False


def _rgb(part: Any) -> Any:
    """Eight bits of red, green and blue; what shines through is white."""
    mode = part.mode
    transparent = mode in ("LA", "PA", "RGBA", "La", "RGBa") or "transparency" in part.info
    if not transparent:
        return part if mode == "RGB" else part.convert("RGB")
    from PIL import Image

    part = part.convert("RGBA")
    white = Image.new("RGBA", part.size, (255, 255, 255, 255))
    white.alpha_composite(part)
    return white.convert("RGB")


def _grey_strips(image: Any, factor: int) -> tuple[np.ndarray, bool]:
    """Sixteen bits count to 65,535; other numbers that leave 0 to 1 are stretched between their extremes."""
    values = np.asarray(image)
    low, high, stretched = 0.0, 65535.0, False
    if image.mode in ("I", "F"):
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise DataError("holds pixels that are not finite")
        smallest, largest = float(values.min()), float(values.max())
        if image.mode == "F" and smallest >= 0 and largest <= 1:
            high = 1.0
        elif smallest < 0 or largest > 65535 or image.mode == "F":
            low, high, stretched = smallest, max(largest, smallest + 1e-12), True
    grey = (block_means(values[:, :, None], factor) - low) / (high - low)
    return np.repeat(grey.astype(np.float32), 3, axis=2), stretched


def block_means(values: np.ndarray, factor: int) -> np.ndarray:
    """Means over squares of ``factor`` pixels; those at the right and lower edge may be smaller."""
    if factor == 1:
        return values.astype(np.float32)
    height, width = values.shape[:2]
    return (_block_sums(values, factor) / _block_sizes(height, width, factor)).astype(np.float32)


def _block_sums(values: np.ndarray, factor: int, top: int = 0, left: int = 0) -> np.ndarray:
    """Sums over squares of a picture, of the part of it whose first pixel lies at (top, left)."""
    rows, columns = (
        pairwise([0, *range(factor - start % factor, size, factor), size])
        for start, size in zip((top, left), values.shape)
    )
    bands = np.stack([values[a:b].sum(axis=0, dtype=np.float64) for a, b in rows])
    return np.stack([bands[:, a:b].sum(axis=1) for a, b in columns], axis=1)


def _block_sizes(height: int, width: int, factor: int) -> np.ndarray:
    """Pixels of each square."""
    tall, wide = (np.diff([*range(0, size, factor), size]) for size in (height, width))
    return (tall[:, None] * wide[None, :])[:, :, None]


def _rgb_over_white(pixels: np.ndarray) -> np.ndarray:
    """Red, green and blue of one to four channels; what shines through is white."""
    if pixels.shape[2] in (2, 4):
        alpha = pixels[:, :, -1:]
        pixels = pixels[:, :, :-1] * alpha + (1 - alpha)
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels


def _is_animated(image: Any) -> bool:
    try:
        return bool(getattr(image, "is_animated", False))
    except Exception:  # a damaged second frame
        return True
    finally:
        if image.tell() != 0:
            image.seek(0)


def _upright(rgb: np.ndarray, turn: int) -> np.ndarray:
    if turn >= 5:
        rgb = rgb.transpose(1, 0, 2)
    if turn in (2, 3, 6, 7):
        rgb = rgb[:, ::-1]
    if turn in (3, 4, 7, 8):
        rgb = rgb[::-1]
    return rgb


def picture_from_array(array: Any, max_side: int = 1024) -> Picture:
    """A picture in memory: grey, RGB or RGBA; whole numbers of 8 or 16 bits, or numbers from 0 to 1."""
    values = np.asarray(array)
    if values.ndim == 2:
        values = values[:, :, None]
    if values.ndim != 3 or values.shape[2] not in (1, 2, 3, 4) or 0 in values.shape:
        raise DataError(
            f"a picture should have shape (height, width[, 1 to 4 channels]), got {np.shape(array)}"
        )
    height, width = values.shape[:2]
    factor = math.ceil(max(height, width) / max_side)
    largest = {"b1": 1.0, "u1": 255.0, "u2": 65535.0}.get(values.dtype.kind + str(values.dtype.itemsize))
    if largest is None:
        if values.dtype.kind != "f" or not (values.min() >= 0 and values.max() <= 1):
            raise DataError(
                f"a picture should hold uint8, uint16, bool, or floats from 0 to 1, got {values.dtype}"
                + ("" if values.dtype.kind != "f" else f" from {values.min():g} to {values.max():g}")
            )
        largest = 1.0
    pixels = _rgb_over_white(block_means(values, factor) / np.float32(largest))
    notes = (_REDUCED.format(max_side),) if factor > 1 else ()
    return Picture(np.ascontiguousarray(pixels, dtype=np.float32), width, height, notes)


# ---------------------------------------------------------------------- large TIFF files


def _segmented(file: Any, max_side: int) -> Picture:
    """The first page of a TIFF that Pillow does not take: 16 bits of colour, or very large."""
    tifffile = optional(
        "tifffile", "this TIFF needs tifffile, which comes with scikit-image: pip install 'bagwise[image]'"
    )
    with tifffile.TiffFile(file) as tiff:
        page: Any = tiff.pages[0]
        height, width, channels = _checked_shape(page)
        several = len(tiff.pages) > 1 and not getattr(tiff.pages[1], "is_reduced", False)
        factor = math.ceil(max(height, width) / max_side)
        sums = np.zeros((math.ceil(height / factor), math.ceil(width / factor), channels))
        try:
            segments = page.segments(sort=True, maxworkers=1, buffersize=_BUFFER)
        except TypeError:  # tifffile of before 2024 chooses how much it reads ahead
            segments = page.segments(sort=True, maxworkers=1)
        for segment, index, _ in segments:
            if segment is None:
                continue  # a hole: nothing was written there
            top, left = index[-3], index[-2]
            inside = segment.reshape(segment.shape[-3:])[: height - top, : width - left]  # tiles overhang
            part = _block_sums(inside, factor, top, left)
            rows, columns = top // factor, left // factor
            sums[rows : rows + part.shape[0], columns : columns + part.shape[1]] += part
        levels = float(np.iinfo(page.dtype).max) if page.dtype.kind == "u" else 1.0
        sizes = _block_sizes(height, width, factor)
        if int(page.photometric) == 0:  # white is zero
            sums = levels * sizes - sums
        pixels = np.clip(_rgb_over_white((sums / sizes / levels).astype(np.float32)), 0, 1)
    notes: tuple[str, ...] = (_FRAMES,) if several else ()
    notes += (_REDUCED.format(max_side),) if factor > 1 else ()
    return Picture(np.ascontiguousarray(pixels), width, height, notes)


def _checked_shape(page: Any) -> tuple[int, int, int]:
    height, width, channels = int(page.imagelength), int(page.imagewidth), int(page.samplesperpixel)
    if height < 1 or width < 1 or height * width > _MAX_FULL:
        raise DataError(f"declares {width} x {height} pixels")
    if page.dtype is None or not (page.dtype.kind == "u" and page.dtype.itemsize <= 2):
        raise DataError(f"holds pixels of type {page.dtype}; 8 and 16 bits are read")
    if channels > 4 or int(page.planarconfig) != 1 or int(getattr(page, "imagedepth", 1)) != 1:
        raise DataError(f"has {channels} channels in an order that is not read; save it as RGB")
    if int(page.photometric) not in (0, 1, 2):
        raise DataError(f"has colours of kind {int(page.photometric)} that are not read; save it as RGB")
    segment = int(np.prod(page.chunks, dtype=np.float64)) * page.dtype.itemsize
    if segment > _MAX_SEGMENT:
        raise DataError(f"has strips of {segment:,} bytes; save it in tiles")
    return height, width, channels
