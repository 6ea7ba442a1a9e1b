"""Running the page on this computer until Ctrl-C."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from bagwise.actions.looking import Session
from bagwise.errors import BagwiseError, OptionalDependencyError


def needs_web() -> None:
    """Say in one line what to install where the page's libraries are missing."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise OptionalDependencyError(f"the page needs {error.name}: pip install 'bagwise[web]'") from None


def listen(port: int = 0) -> socket.socket:
    """A socket on 127.0.0.1; port 0 takes a free one."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", port))
    except OSError as error:
        sock.close()
        raise BagwiseError(
            f"port {port} cannot be used ({error.strerror}); choose another with --port"
        ) from None
    sock.listen(128)
    return sock


def serve(
    session: Session,
    *,
    port: int = 0,
    train: str | None = None,
    ready: Callable[[str], Any] = lambda address: None,
) -> None:
    """Serve the page of a session until Ctrl-C.

    Parameters
    ----------
    session : Session
        What to look at.
    port : int, default=0
        Port on 127.0.0.1; 0 takes a free one.
    train : path or name, optional
        Further data to learn from, such as those that the model was fitted to.
    ready : callable, optional
        Called with the address, token included, as soon as it answers.
    """
    needs_web()
    import uvicorn

    from bagwise.actions.teaching import Teaching
    from bagwise.web.guard import new_token
    from bagwise.web.routes import make_app

    token = new_token()
    teaching = Teaching(session, train)
    sock = listen(port)
    session.start()
    config = uvicorn.Config(
        make_app(session, token, teaching),
        log_level="error",
        access_log=False,
        lifespan="off",
        ws="none",
        http="h11",
        loop="asyncio",
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
        limit_concurrency=200,
    )
    ready(f"http://127.0.0.1:{sock.getsockname()[1]}/?token={token}")
    try:
        uvicorn.Server(config).run(sockets=[sock])
    except KeyboardInterrupt:
        pass  # the way to end it
    finally:
        teaching.close()
        session.stop()
        sock.close()
