"""Opening an address: http and https alone, also after redirections, and headers within a time limit."""

from __future__ import annotations

import socket
import ssl
import threading
import urllib.parse
import urllib.request
from contextlib import suppress
from http.client import HTTPConnection, HTTPSConnection
from typing import Any

TIMEOUT = 30.0  # seconds without a byte


class Refused(Exception):
    """A redirection to where we do not go."""


def open_within(request: urllib.request.Request, seconds: float) -> Any:
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
        return _opener(made).open(request, timeout=min(TIMEOUT, seconds))
    finally:
        watch.cancel()


def _opener(made: list[HTTPConnection]) -> urllib.request.OpenerDirector:
    """An opener without ftp and local files, which notes the connections that it makes."""

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

    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        Http(),
        Https(),
        urllib.request.HTTPDefaultErrorHandler(),
        _Redirections(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


class _Redirections(urllib.request.HTTPRedirectHandler):
    """Follow redirections to http and https alone; Python's own also goes to ftp."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        scheme = urllib.parse.urlsplit(newurl).scheme
        if scheme not in ("http", "https"):
            raise Refused(f"the server sends us to {scheme}, and only http and https are supported")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
