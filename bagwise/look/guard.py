"""Who may ask: this computer's own browser, with the token, from the page itself, in small requests.

The server listens on 127.0.0.1, but every page that a browser has open can send requests there. So each
request must name this host (a foreign name that points here is refused), carry the token (as the cookie that
the first visit sets, or in the address), and come from our page where the browser says whence it comes.
Answers carry headers that allow nothing but the page's own scripts, styles and files.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.exceptions import HTTPException

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

LARGEST_BODY = 64 * 1024  # bytes; a correction has some hundred
_HOSTS = {"127.0.0.1", "localhost", "[::1]"}

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class Guard:
    """ASGI middleware that refuses what the rules above refuse; see the head of this file.

    Parameters
    ----------
    app : ASGI application
        What stands behind it.
    token : str
        The secret.
    """

    def __init__(self, app: Any, token: str) -> None:
        self.app, self.token = app, token
        self.cookie = "bagwise_" + token[:6]  # browsers share cookies between ports: two pages, two names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through or answer it with a refusal."""
        if scope["type"] != "http":
            return  # no web sockets here
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        refused = self._refusal(scope, headers)
        if refused is not None:
            await _answer(send, *refused)
            return
        if scope["path"] == "/" and b"token=" in scope["query_string"]:
            # keep the token in a cookie and take it out of the address, where others might read it
            cookie = f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"
            await _answer(send, 303, "", {"location": "/", "set-cookie": cookie})
            return
        taken = 0

        async def counted() -> Message:  # whatever its length was said to be
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > LARGEST_BODY:
                raise HTTPException(413, f"a request may have {LARGEST_BODY:,} bytes")
            return message

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_encoded(HEADERS)]
            await send(message)

        await self.app(scope, counted, with_headers)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if host.rpartition(":")[0] not in _HOSTS and host not in _HOSTS:
            return 421, "this server answers to 127.0.0.1 and localhost only"
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "only GET and POST are answered"
        if foreign(headers, host, scope["method"]):
            return 403, "requests from other pages are refused"
        if not self._has_token(scope, headers):
            return 403, "the token is missing or wrong; open the address that bagwise look printed"
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > LARGEST_BODY:
            return 413, f"a request may have {LARGEST_BODY:,} bytes"
        return None

    def _has_token(self, scope: Scope, headers: dict[str, str]) -> bool:
        given = [headers.get("x-bagwise-token", "")]
        query = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=50)
        given += query.get("token", [])[:1]
        try:
            jar = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            jar = SimpleCookie()
        if self.cookie in jar:
            given.append(jar[self.cookie].value)
        # every candidate is compared in full, in a time that does not tell how much of it is right
        return sum(hmac.compare_digest(value.encode(), self.token.encode()) for value in given) > 0


def foreign(headers: dict[str, str], host: str, method: str) -> bool:
    """Whether a browser says that the request comes from another page; writing needs to say whence.

    Examples
    --------
    >>> foreign({"origin": "http://evil.example"}, "127.0.0.1:8000", "POST")
    True
    >>> foreign({"origin": "http://127.0.0.1:8000"}, "127.0.0.1:8000", "POST")
    False
    """
    site = headers.get("sec-fetch-site")
    if site not in (None, "same-origin", "none"):
        # a link on another page may be followed, but nothing may be fetched or posted from there
        if not (method == "GET" and headers.get("sec-fetch-mode") == "navigate"):
            return True
    origin = headers.get("origin")
    if origin is not None:
        found = urlsplit(origin)
        return found.scheme != "http" or found.netloc != host
    return method == "POST" and site is None and "x-bagwise-token" not in headers


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


async def _answer(send: Send, status: int, text: str, headers: dict[str, str] | None = None) -> None:
    body = text.encode()
    fixed = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(body))}
    fixed |= {"cache-control": "no-store", "connection": "close"} if status >= 400 else {}
    everything = _encoded({**fixed, **HEADERS, **(headers or {})})
    await send({"type": "http.response.start", "status": status, "headers": everything})
    await send({"type": "http.response.body", "body": body})
