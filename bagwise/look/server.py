"""The page on this computer: addresses, the questions behind them, and the server that runs until Ctrl-C.

An answer is JSON, a file of the page, or an original. Here alone starlette and uvicorn are needed, which the
extra ``web`` installs.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from bagwise.errors import BagwiseError, in_one_line
from bagwise.look.exporting import export
from bagwise.look.guard import Guard
from bagwise.look.page import TYPES, static_files
from bagwise.look.relearning_process import RelearningProcess
from bagwise.look.session import Session


def answer(value: Any, status: int = 200) -> Response:
    """JSON that is asked for anew each time."""
    body = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return Response(body, status, {"cache-control": "no-store"}, "application/json")


class Routes:
    """The questions that the page asks of one session."""

    def __init__(self, session: Session, relearning: RelearningProcess | None = None) -> None:
        self.session = session
        self.relearning = RelearningProcess(session) if relearning is None else relearning
        self.static = static_files()

    def routes(self) -> list[Route]:
        """All addresses."""
        get = {
            "/": self.page,
            "/static/{name}": self.file,
            "/api/overview": self.overview,
            "/api/bags": self.bags,
            "/api/bag/{number:int}": self.bag,
            "/api/next": self.next,
            "/api/curve": self.curve,
            "/api/version": self.version,
            "/api/history": self.history,
            "/api/learn": self.learning,
            "/export/{kind}": self.export,
            "/media/{number:int}/sound": self.sound,
            "/media/{number:int}/spectrogram": self.spectrogram,
            "/media/{number:int}/picture": self.picture,
        }
        post = {
            "/api/correct": self.correct,
            "/api/undo": self.undo,
            "/api/seen": self.look_at,
            "/api/learn": self.learn,
        }
        found = [Route(path, _guarded(ask), methods=["GET"]) for path, ask in get.items()]
        found += [Route(path, _posted(ask), methods=["POST"]) for path, ask in post.items()]
        return found

    # ------------------------------------------------------------------ files of the page

    def page(self, request: Request) -> Response:
        """The page, which then asks for the rest."""
        return Response(
            self.static["index.html"], headers={"cache-control": "no-cache"}, media_type=TYPES[".html"]
        )

    def file(self, request: Request) -> Response:
        """A script, style or picture of the page."""
        name = request.path_params["name"]
        if name not in self.static:
            raise HTTPException(404, "no such file")
        kind = TYPES["." + name.rpartition(".")[2]]
        return Response(self.static[name], headers={"cache-control": "no-cache"}, media_type=kind)

    # ------------------------------------------------------------------ questions

    def overview(self, request: Request) -> Response:
        """What there is."""
        return answer(self.session.overview())

    def bags(self, request: Request) -> Response:
        """A page of the table."""
        q = request.query_params
        return answer(
            self.session.table.rows(
                show=q.get("show", "all"),
                label=q.get("label"),
                q=q.get("q", "")[:200],
                sort=q.get("sort", "number"),
                down=q.get("down") == "1",
                offset=_whole(q.get("offset", "0")),
                limit=_whole(q.get("limit", "50")),
            )
        )

    def bag(self, request: Request) -> Response:
        """One bag."""
        given = request.query_params.get("given") == "1"
        return answer(self.session.explain(request.path_params["number"], given=given))

    def next(self, request: Request) -> Response:
        """Which bag to look at next."""
        q = request.query_params
        by, after = q.get("by", "order"), _whole(q.get("after", "-1"))
        return answer({"number": self.session.table.next(by, after, q.get("label"))})

    def curve(self, request: Request) -> Response:
        """Quality over the threshold of a label."""
        return answer(self.session.curve(request.query_params.get("label", "")))

    def version(self, request: Request) -> Response:
        """Whether anything changed."""
        return answer({"version": self.session.version})

    def history(self, request: Request) -> Response:
        """The last corrections that stand, newest first."""
        entries = self.session.corrections.standing()[:-101:-1]
        return answer({"entries": [{**e, "number": self.session.numbers.get(e["bag"])} for e in entries]})

    # ------------------------------------------------------------------ originals

    def sound(self, request: Request) -> Response:
        """The recording of a bag; browsers ask for pieces of it."""
        return _original(*self.session.originals.sound(self._number(request)))

    def spectrogram(self, request: Request) -> Response:
        """The spectrogram of a bag's recording."""
        return _original(self.session.originals.spectrogram(self._number(request)), "image/png")

    def picture(self, request: Request) -> Response:
        """The picture of a bag."""
        return _original(*self.session.originals.picture(self._number(request)))

    def export(self, request: Request) -> Response:
        """All answers as a file for another tool."""
        content, name, kind = export(self.session, request.path_params["kind"])
        plain = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
        plain = plain.encode("ascii", "replace").decode().replace("?", "_")
        headers = {"content-disposition": f'attachment; filename="{plain}"', "cache-control": "no-store"}
        return Response(content, headers=headers, media_type=kind)

    def _number(self, request: Request) -> int:
        number = request.path_params["number"]
        if not 0 <= number < len(self.session.ids):
            raise HTTPException(404, "no such bag")
        return number

    # ------------------------------------------------------------------ writing

    def look_at(self, asked: dict[str, Any]) -> Response:
        """Remember that somebody looked at a bag."""
        if type(asked.get("number")) is not int:
            raise HTTPException(400, "expected the number of a bag")
        self.session.see(asked["number"])
        return answer({})

    def correct(self, asked: dict[str, Any]) -> Response:
        """Keep one correction; answer with the bag as it is now."""
        number, part = asked.get("number"), asked.get("part")
        said, label = asked.get("answer"), asked.get("label")
        named = isinstance(said, str) and (label is None or isinstance(label, str))
        if type(number) is not int or not (part is None or type(part) is int) or not named:
            raise HTTPException(400, "expected number, part, answer and label")
        entry = self.session.correct(number, str(said), part=part, label=label)
        return answer({"id": entry["id"], "bag": self._bag(number, asked), "names": self.session.names})

    def undo(self, asked: dict[str, Any]) -> Response:
        """Take back a correction; answer with its bag."""
        which = asked.get("id")
        if not (which is None or isinstance(which, str)):
            raise HTTPException(400, "expected the id of a correction")
        entry = self.session.undo(which)
        if entry is None:
            return answer({"undone": None})
        number = self.session.numbers.get(entry["bag"])
        bag = None if number is None else self._bag(number, asked)
        return answer({"undone": entry, "bag": bag, "names": self.session.names})

    # ------------------------------------------------------------------ learning again

    def learning(self, request: Request) -> Response:
        """How far learning is, and what came of it."""
        return answer(self.relearning.state())

    def learn(self, asked: dict[str, Any]) -> Response:
        """Start or stop learning; take or leave the new model."""
        acts = {"start": self.relearning.start, "stop": self.relearning.stop, "leave": self.relearning.leave}
        if asked.get("do") == "use":
            return answer({"model": Path(self.relearning.use()).name})
        if asked.get("do") not in acts:
            raise HTTPException(400, "expected start, stop, use or leave")
        acts[asked["do"]]()
        return answer(self.relearning.state())

    def _bag(self, number: int, asked: dict[str, Any]) -> dict[str, Any]:
        return self.session.explain(number, given=asked.get("given") is True)


def _original(content: Path | bytes, kind: str) -> Response:
    headers = {"cache-control": "private, max-age=600"}
    if isinstance(content, bytes):
        return Response(content, headers=headers, media_type=kind)
    return FileResponse(content, headers=headers, media_type=kind)


def _guarded(ask: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """What users can put right is answered in one line."""

    def asked(request: Request) -> Response:
        try:
            return ask(request)
        except BagwiseError as error:
            missing = request.url.path.startswith("/media/")
            return answer({"error": in_one_line(error, 500)}, 404 if missing else 400)

    return asked


def _posted(ask: Callable[[dict[str, Any]], Response]) -> Callable[[Request], Any]:
    async def asked(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise HTTPException(415, "expected JSON")
        try:
            given = json.loads(await request.body())
        except (ValueError, RecursionError):
            raise HTTPException(400, "expected JSON") from None
        if not isinstance(given, dict):
            raise HTTPException(400, "expected a JSON object")
        return await run_in_threadpool(_guarded(lambda _: ask(given)), request)

    return asked


def _whole(text: str) -> int:
    try:
        return int(text[:20])
    except ValueError:
        raise HTTPException(400, "expected a whole number") from None


async def _refused(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    return answer({"error": getattr(error, "detail", "something went wrong; see the terminal")}, status)


def make_app(session: Session, token: str, relearning: RelearningProcess | None = None) -> Guard:
    """The whole application, behind its guard."""
    handlers: Any = {HTTPException: _refused, 500: _refused}
    return Guard(Starlette(routes=Routes(session, relearning).routes(), exception_handlers=handlers), token)


# ---------------------------------------------------------------------- running it


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
    token = secrets.token_urlsafe(24)
    relearning = RelearningProcess(session, train)
    sock = listen(port)
    session.start()
    config = uvicorn.Config(
        make_app(session, token, relearning),
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
        relearning.close()
        session.stop()
        sock.close()
