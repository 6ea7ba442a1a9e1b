"""Opening files that may be compressed, hostile or broken: bounded bytes in, one clear error out."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bagwise.errors import BagwiseError, DataError
from bagwise.utils.files import check_file

# What a file may grow to when unpacked: a guard against decompression bombs, far above any honest set
# that fits a laptop's memory. Larger data are read with read(path, max_bytes=...).
MAX_BYTES = 8 * 2**30
_CHUNK = 1 << 20


def read_bytes(path: str | Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Content of a file, unpacked if it is gzip, refused beyond ``max_bytes``."""
    path = Path(path)
    check_file(path)
    try:
        with open(path, "rb") as handle:
            head = handle.read(2)
            handle.seek(0)
            if head == b"\x1f\x8b":
                return _gunzip(handle, path, max_bytes)
            # As much as there is: Python reserves what it is asked to read, 8 GiB for a small file.
            size = os.fstat(handle.fileno()).st_size
            content = handle.read(min(size, max_bytes) + 1)
            while len(content) > size and len(content) <= max_bytes:  # it grows, or does not know its size
                size = len(content)
                content += handle.read(min(_CHUNK, max_bytes + 1 - size))
    except FileNotFoundError:
        raise DataError("no such file", path=path) from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path=path) from None
    if len(content) > max_bytes:
        raise _too_large(path, max_bytes)
    return content


def _gunzip(handle, path: Path, max_bytes: int) -> bytes:
    parts, total = [], 0
    unpack = zlib.decompressobj(wbits=31)
    try:
        while chunk := handle.read(_CHUNK):
            while chunk:
                part = unpack.decompress(chunk, max(max_bytes + 1 - total, 1))
                total += len(part)
                if total > max_bytes:
                    raise _too_large(path, max_bytes)
                parts.append(part)
                chunk = unpack.unconsumed_tail
                if unpack.eof:  # gzip files may be several members end to end
                    chunk = unpack.unused_data
                    unpack = zlib.decompressobj(wbits=31) if chunk or handle.peek(1) else unpack
                    if unpack.eof:
                        break
    except zlib.error as error:
        raise DataError(f"damaged gzip file ({error})", path=path) from None
    if not unpack.eof:
        raise DataError("truncated gzip file: it ends before its data do", path=path)
    return b"".join(parts)


def _too_large(path: Path, max_bytes: int) -> DataError:
    return DataError(
        f"holds more than {max_bytes:,} bytes when unpacked; if that is right, give a larger max_bytes",
        path=path,
    )


def read_text(path: str | Path, max_bytes: int = MAX_BYTES) -> str:
    """Text of a UTF-8 file; the error names the line that is not."""
    content = read_bytes(path, max_bytes)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"byte {content[error.start]:#04x} is not UTF-8 text; convert the file to UTF-8 first",
            path=path,
            line=line,
        ) from None


def numbered_lines(path: str | Path, max_bytes: int = MAX_BYTES) -> Iterator[tuple[int, str]]:
    """Lines of a text file with their numbers from 1, without line ends; blank lines are left out."""
    for number, line in enumerate(read_text(path, max_bytes).split("\n"), 1):
        if line := line.strip("\r\n "):
            yield number, line


@contextmanager
def blame(path: str | Path) -> Iterator[None]:
    """Place errors of the containers in the file that caused them."""
    try:
        yield
    except DataError as error:
        raise error.at(path) from None
    except BagwiseError:
        raise
    except (MemoryError, OverflowError) as error:
        raise DataError(f"asks for more memory than there is ({error})", path=path) from None
