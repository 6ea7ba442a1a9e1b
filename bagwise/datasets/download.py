"""Fetching one published file: resumed when cut, checked against its checksum, never half-written in place.

``pooch`` keeps the cache (checksum, temporary file, rename); this module brings what it lacks: a download
that goes on where the last one stopped, an end to servers that send a byte now and then, and a refusal of
redirects to anything but http and https. Of a server that cuts every answer of a megabyte after 400 kB,
pooch's own downloader has no file after four attempts and 1.6 MB, this one has it after three and 1.0 MB
(``benchmarks/own_or_library_input.py downloads``).
"""

from __future__ import annotations

import errno
import logging
import os
import re
import socket
import ssl
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import IO, Any

from bagwise.errors import DownloadError
from bagwise.utils.files import lock

_CHUNK = 1 << 16
_TIMEOUT = 30.0  # seconds without a byte
_PATIENCE, _SLOWEST = 300.0, 20_000.0  # seconds in all, and bytes per second on top of them
_ATTEMPTS = 4
# Failures of this machine's disk, which no further attempt will mend.
_LOCAL = {errno.EACCES, errno.EEXIST, errno.EISDIR, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS}


class _Cut(Exception):
    """A transfer that ended early; what has come is kept."""


class _Over(Exception):
    """No further attempt will help: out of time, or sent to a place where we do not go."""


def fetch(
    url: str,
    path: str | Path,
    sha256: str,
    size: int,
    *,
    attempts: int = _ATTEMPTS,
    pause: float = 1.0,
    instead: str = "",
    limit: float | None = None,
) -> Path:
    """Return ``path``, holding the file with this checksum; download it if it is not there yet.

    Parameters
    ----------
    url : str
        Where the file is published (http or https).
    path : path
        Where it is kept. While it comes in, it is called ``<path>.part``; a later call continues there.
    sha256 : str
        Checksum of the content. A file at ``path`` with another content is fetched again.
    size : int
        Its length in bytes; anything longer is refused on the way.
    attempts : int, default=4
        How often a cut, slow or refused connection is tried.
    pause : float, default=1.0
        Seconds before the second attempt; doubled before each further one.
    instead : str, optional
        What the user can do without this download, for the error message.
    limit : float, optional
        Seconds that the whole call may take; by default five minutes and the time that the file needs at
        20 kB per second.

    Raises
    ------
    DownloadError
        Naming the address, the reason, and what to do.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise DownloadError(f"cannot download {url}: only http and https addresses are supported")
    import pooch  # brings requests along: too slow to import before it is needed

    path = Path(path)
    limit = _PATIENCE + size / _SLOWEST if limit is None else limit
    downloader = _Resuming(size, path, attempts, pause, limit)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _quiet(pooch.get_logger()):
            try:
                pooch.retrieve(url, f"sha256:{sha256}", path.name, path.parent, downloader=downloader)
            except ValueError:
                if not downloader.resumed:
                    raise
                # The beginning kept from an earlier call may be the culprit: once more from the start.
                pooch.retrieve(url, f"sha256:{sha256}", path.name, path.parent, downloader=downloader)
    except ValueError:
        reason = "what came has another checksum than the published file, and was thrown away"
        raise _failed(url, reason, "the origin may have changed; report it", instead) from None
    except _Over as error:
        raise _failed(url, str(error), "run again later: it continues where it stopped", instead) from None
    except urllib.error.HTTPError as error:
        reason = f"the server answered {error.code} ({error.reason})"
        advice = "the file may have moved; report it" if error.code < 500 else "try again later"
        raise _failed(url, reason, advice, instead) from None
    except (_Cut, OSError, HTTPException) as error:
        if isinstance(error, OSError) and error.errno in _LOCAL:
            advice = "choose another folder with the environment variable BAGWISE_CACHE"
            raise _failed(
                url, f"{path.parent} cannot be written ({error.strerror})", advice, instead
            ) from None
        reason = str(getattr(error, "reason", "") or error) or type(error).__name__
        advice = "check the connection and run again: it continues where it stopped"
        raise _failed(url, reason, advice, instead) from None
    return path


def _failed(url: str, reason: str, advice: str, instead: str) -> DownloadError:
    return DownloadError(f"cannot download {url}: {reason}; {advice}{f'. {instead}' if instead else ''}")


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Keep pooch from announcing downloads on stderr; the progress bar does that, on a terminal."""
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)


class _Resuming:
    """A downloader for pooch that keeps a ``.part`` file between attempts and between calls."""

    def __init__(self, size: int, path: Path, attempts: int, pause: float, limit: float) -> None:
        self.size, self.path, self.attempts, self.pause = size, path, attempts, pause
        self.limit, self.deadline = limit, time.monotonic() + limit
        self.resumed = False

    def _time_left(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise _Over(f"it took longer than {self.limit:g} seconds")
        return left

    def __call__(self, url: str, output_file: Any, pooch: Any = None, *, check_only: bool = False) -> None:
        self.resumed = False
        with _part_file(self.path) as (part, handle), _progress(self.path.name, self.size) as advance:
            for attempt in range(self.attempts):
                if attempt:
                    time.sleep(min(self.pause * 2 ** (attempt - 1), self._time_left()))
                try:
                    self._transfer(url, handle, advance)
                    break
                except urllib.error.HTTPError as error:
                    if (error.code < 500 and error.code not in (408, 429)) or attempt == self.attempts - 1:
                        raise
                except (_Cut, OSError, HTTPException) as error:
                    self._time_left()
                    if attempt == self.attempts - 1 or getattr(error, "errno", None) in _LOCAL:
                        raise
            handle.flush()
            os.fsync(handle.fileno())
            if os.name == "nt":  # elsewhere the lock is held until the name is gone
                handle.close()
            os.replace(part, output_file)  # pooch checks it under that name, then moves it into place

    def _transfer(self, url: str, handle: IO[bytes], advance: Any) -> None:
        have = handle.seek(0, os.SEEK_END)
        if have > self.size:  # left over from another edition of the file
            have = _cut_to(handle, 0)
        if have == self.size:
            self.resumed = True
            return
        request = urllib.request.Request(
            url, headers={"User-Agent": "bagwise", "Accept-Encoding": "identity"}
        )
        if have:
            request.add_header("Range", f"bytes={have}-")
        with _open_within(request, self._time_left()) as response:
            # Content-Range: bytes 100-199/200
            begins = re.match(r"\S+\s+(\d+)-", response.headers.get("Content-Range", ""))
            continues = response.status == 206 and begins is not None and int(begins[1]) == have
            if continues and have:
                self.resumed = True
            elif have:
                have = _cut_to(handle, 0)  # the server sends all of it again
            if response.status == 206 and not continues:
                raise _Cut("the server sent another part of the file than it was asked for")
            advance(have)
            # What one receive brings: a server that sends a byte now and then must not hold us for ever.
            while chunk := response.read1(_CHUNK):
                self._time_left()
                handle.write(chunk)
                have += len(chunk)
                advance(have)
                if have > self.size:
                    _cut_to(handle, 0)
                    raise _Cut(f"the server sends more than the {self.size:,} bytes of the published file")
        if have < self.size:
            expected = response.headers.get("Content-Length")
            if response.status == 200 and expected is not None and int(expected) == have:
                return  # complete, but shorter than published: the checksum will say so
            raise _Cut(f"the connection ended after {have:,} of {self.size:,} bytes")


def _cut_to(handle: IO[bytes], length: int) -> int:
    handle.truncate(length)
    return handle.seek(length)


# ---------------------------------------------------------------------- opening an address


def _open_within(request: urllib.request.Request, seconds: float) -> Any:
    """Open an address; what the server says before the content must be complete in so many seconds.

    The timeout of a socket bounds the wait for each byte, not for all of them: a watch closes the connection.
    """
    made: list[HTTPConnection] = []

    def close_all() -> None:
        for connection in made:
            with suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    watch = threading.Timer(seconds, close_all)
    watch.daemon = True
    watch.start()
    try:
        return _opener(made).open(request, timeout=min(_TIMEOUT, seconds))
    finally:
        watch.cancel()


def _opener(made: list[HTTPConnection]) -> urllib.request.OpenerDirector:
    """An opener that notes the connections that it makes, and is sent to no other places than the web."""

    def noted(kind: Any) -> Any:
        def make(*args: Any, **options: Any) -> HTTPConnection:
            made.append(kind(*args, **options))
            return made[-1]

        return make

    class Http(urllib.request.HTTPHandler):
        def http_open(self, request: Any) -> Any:
            return self.do_open(noted(HTTPConnection), request)

    class Https(urllib.request.HTTPSHandler):
        def https_open(self, request: Any) -> Any:
            return self.do_open(noted(HTTPSConnection), request, context=ssl.create_default_context())

    return urllib.request.build_opener(Http, Https, _Redirections)


class _Redirections(urllib.request.HTTPRedirectHandler):
    """Follow redirections to http and https alone; Python's own also goes to ftp."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        scheme = urllib.parse.urlsplit(newurl).scheme
        if scheme not in ("http", "https"):
            raise _Over(f"the server sends us to {scheme}, and only http and https are supported")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


# ---------------------------------------------------------------------- the file that comes in


@contextmanager
def _part_file(path: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """The ``.part`` file, open for appending; a private one while somebody else writes to it."""
    part = path.with_name(path.name + ".part")
    with ExitStack() as opened:
        handle = opened.enter_context(open(part, "ab"))
        shared = lock(handle) and _still_called(handle, part)
        if not shared:
            part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
            handle = opened.enter_context(open(part, "ab"))
        try:
            yield part, handle
        finally:
            if _still_called(handle, part) and not (shared and os.fstat(handle.fileno()).st_size):
                if os.name == "nt":
                    handle.close()
                part.unlink()


def _still_called(handle: IO[bytes], path: Path) -> bool:
    """Whether the name still leads to the open file: who held the lock before may have moved it away."""
    if handle.closed:
        return False
    try:
        return os.path.samestat(os.fstat(handle.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


@contextmanager
def _progress(name: str, size: int) -> Iterator[Any]:
    """A progress bar on stderr if that is a terminal, nothing at all otherwise."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=size)
        yield lambda done: bar.update(task, completed=done)
