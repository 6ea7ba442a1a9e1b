"""Where the files of public sets lie: a folder of the user's, the cache, or the net."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from bagwise.datasets.download import fetch
from bagwise.errors import DataError, DownloadError


@dataclass(frozen=True)
class PublicFile:
    """One file of a public set, described by its original, uncompressed bytes.

    Parameters
    ----------
    folder, name : str
        It is looked for as ``<folder>/<name>``, or with ``.gz``.
    sha256 : str
        Checksum.
    size : int
        Length in bytes.
    url : str, optional
        Where it can be fetched; empty if it cannot.
    optional : bool, default=False
        Whether the set can be read without it.
    by_hand : str, optional
        How to get a file that has no address of its own.
    """

    folder: str
    name: str
    sha256: str
    size: int
    url: str = ""
    optional: bool = False
    by_hand: str = ""

    def at_hand(self, data_home: str | Path | None = None) -> Path | None:
        """The file in the user's folder or, failing that, in the cache; None if in neither.

        Parameters
        ----------
        data_home : path, optional
            The user's folder; by default the environment variable ``BAGWISE_DATA``.
        """
        home = data_home or os.environ.get("BAGWISE_DATA")
        if home:
            plain = Path(home).expanduser() / self.folder / self.name
            for path in (plain, plain.with_name(plain.name + ".gz")):
                if path.is_file():
                    return path
        cached = self.cached
        return cached if cached.is_file() else None

    @property
    def cached(self) -> Path:
        """Where a download is kept."""
        return cache_folder() / self.folder / self.name

    def obtain(
        self, data_home: str | Path | None = None, *, download: bool = True, verify: bool = False
    ) -> Path:
        """Path of the file, downloaded if need be.

        Parameters
        ----------
        data_home : path, optional
            See `at_hand`.
        download : bool, default=True
            Whether the net may be used.
        verify : bool, default=False
            Whether to check the checksum of a file in the user's folder. Cached files are always checked.
        """
        path = self.at_hand(data_home)
        if path is not None:
            checked = verify or path == self.cached
            if not checked or checksum(path) == self.sha256:
                return path
            if path != self.cached:
                raise DataError("is not the published file: its checksum differs", path=path)
        if not self.url:
            how = f"{self.by_hand} " if self.by_hand else ""
            raise DownloadError(f"{self.folder}/{self.name} cannot be downloaded. {how}{self._instead}")
        if not download:
            raise DownloadError(
                f"{self.folder}/{self.name} is not at hand; allow download=True to fetch {self.url}. "
                f"{self._instead}"
            )
        return fetch(self.url, self.cached, self.sha256, self.size, instead=self._instead)

    @property
    def _instead(self) -> str:
        return (
            f"If you have the file {self.name}, put it (or {self.name}.gz) in the folder {self.folder} of a "
            "folder of your choice, and name that folder in the environment variable BAGWISE_DATA"
        )


def cache_folder() -> Path:
    """Folder that keeps downloads: ``BAGWISE_CACHE``, or the system's place for caches."""
    chosen = os.environ.get("BAGWISE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs  # where pooch asks, too; pooch itself brings network libraries, too slow for a look

    return Path(platformdirs.user_cache_dir("bagwise"))


def checksum(path: str | Path) -> str:
    """SHA-256 of a file's content, of the unpacked content if its name ends in ``.gz``.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "empty"
    >>> path.touch()
    >>> checksum(path)[:8]
    'e3b0c442'
    """
    digest = hashlib.sha256()
    try:
        with gzip.open(path, "rb") if str(path).endswith(".gz") else open(path, "rb") as handle:
            while chunk := handle.read(1 << 20):
                digest.update(chunk)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be read ({error})", path=path) from None
    return digest.hexdigest()
