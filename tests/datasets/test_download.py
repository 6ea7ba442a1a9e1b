import gzip
import hashlib
import os
import pty
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from bagwise.datasets.download import fetch
from bagwise.datasets.registry import PublicFile, cache_folder
from bagwise.errors import DataError, DownloadError

CONTENT = np.random.default_rng(0).bytes(300_000)
SHA = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT with ranges; ``server.plan`` lists what to do with the next requests."""

    def do_GET(self):
        server = self.server
        server.requests.append(self.headers.get("Range"))
        action = server.plan.pop(0) if server.plan else "serve"
        if isinstance(action, int):
            return self.send_error(action)
        if action == "slow headers":
            for letter in b"HTTP/1.0 200 OK\r\n" + b"X-Filler: yes\r\n" * 1000:
                self.wfile.write(bytes([letter]))
                time.sleep(0.02)
        if str(action).startswith("to "):
            self.send_response(302)
            self.send_header("Location", action.removeprefix("to "))
            self.send_header("Content-Length", "0")
            return self.end_headers()
        body, start = server.content, 0
        asked = self.headers.get("Range")
        if asked and action != "ignore range":
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(body):
                return self.send_error(416)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        if action == "cut":
            self.wfile.write(body[start : start + 100_000])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        elif action == "drip":
            for letter in body[start:]:
                self.wfile.write(bytes([letter]))
                time.sleep(0.02)
        else:
            self.wfile.write(body[start:])

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # a client that hangs up is what some tests are about
    server.content, server.plan, server.requests = CONTENT, [], []
    server.url = f"http://127.0.0.1:{server.server_port}/set/data.bin"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def target(tmp_path):
    return tmp_path / "cache" / "set" / "data.bin"


def get(server, target, **options):
    return fetch(server.url, target, SHA, len(CONTENT), pause=0.01, **options)


def files_beside(target):
    return sorted(path.name for path in target.parent.iterdir())


@pytest.mark.parametrize("action", ["drip", "slow headers"])
def test_a_server_that_never_ends_is_left(server, target, action):
    server.plan = [action] * 9
    start = time.monotonic()
    with pytest.raises(DownloadError, match=r"longer than 0\.5 seconds"):
        get(server, target, limit=0.5)
    assert time.monotonic() - start < 5
    server.plan = []
    assert get(server, target).read_bytes() == CONTENT


@pytest.mark.parametrize("place", ["ftp://127.0.0.1/data.bin", "file:///etc/passwd", "gopher://x/"])
def test_redirections_stay_on_the_web(server, target, place):
    server.plan = [f"to {place}"] * 9
    with pytest.raises(DownloadError, match=r"only http and https|302"):
        get(server, target)
    assert len(server.requests) == 1
    server.plan = [f"to {server.url}"]
    assert get(server, target).read_bytes() == CONTENT


def test_fresh_download_then_cache(server, target):
    assert get(server, target).read_bytes() == CONTENT
    assert files_beside(target) == ["data.bin"]
    get(server, target)
    assert server.requests == [None]


def test_cut_connections_are_resumed_within_one_call(server, target):
    server.plan = ["cut", "cut"]
    assert get(server, target).read_bytes() == CONTENT
    assert server.requests == [None, "bytes=100000-", "bytes=200000-"]


def test_next_call_continues_where_the_last_one_stopped(server, target):
    server.plan = ["cut"]
    with pytest.raises(DownloadError, match=r"100,000 of 300,000 bytes.*continues where it stopped"):
        get(server, target, attempts=1)
    assert files_beside(target) == ["data.bin.part"]
    assert get(server, target).read_bytes() == CONTENT
    assert server.requests == [None, "bytes=100000-"]
    assert files_beside(target) == ["data.bin"]


def test_server_without_ranges_starts_over(server, target):
    server.plan = ["cut", "ignore range"]
    assert get(server, target).read_bytes() == CONTENT


@pytest.mark.parametrize("stale", [b"x" * 1000, b"y" * 300_000, b"z" * 400_000])
def test_a_wrong_beginning_is_thrown_away(server, target, stale):
    target.parent.mkdir(parents=True)
    target.with_name("data.bin.part").write_bytes(stale)
    assert get(server, target).read_bytes() == CONTENT
    assert files_beside(target) == ["data.bin"]


@pytest.mark.parametrize("content", [b"?" * 300_000, CONTENT[:-1], b"", CONTENT + b"!"])
def test_wrong_content_is_refused_and_leaves_nothing(server, target, content):
    server.content = content
    with pytest.raises(DownloadError, match=r"data\.bin: .*(checksum|more than)"):
        get(server, target)
    assert files_beside(target) == []


def test_wrong_content_does_not_replace_a_good_file(server, target):
    get(server, target)
    server.content = b"?" * 300_000
    other = hashlib.sha256(b"other").hexdigest()
    with pytest.raises(DownloadError):
        fetch(server.url, target, other, 300_000, pause=0.01)
    assert target.read_bytes() == CONTENT


def test_damaged_cache_is_fetched_again(server, target):
    target.parent.mkdir(parents=True)
    target.write_bytes(b"damaged")
    assert get(server, target).read_bytes() == CONTENT


def test_missing_page_is_not_tried_again(server, target):
    server.plan = [404, 404]
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1.*404.*BAGWISE_DATA"):
        get(server, target, instead="Use BAGWISE_DATA")
    assert len(server.requests) == 1
    assert files_beside(target) == []


def test_busy_server_is_tried_again(server, target):
    server.plan = [503, 429]
    assert get(server, target).read_bytes() == CONTENT
    server.plan = [503, 503]
    with pytest.raises(DownloadError, match=r"503.*try again later"):
        get(server, target.with_name("other.bin"), attempts=2)


def test_server_down(target):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/data.bin"
    with pytest.raises(DownloadError, match=r"refused.*check the connection"):
        fetch(url, target, SHA, 300_000, attempts=2, pause=0.01)
    assert files_beside(target) == []


def test_a_cache_that_cannot_be_written(server, tmp_path):
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(DownloadError, match=r"cannot be written.*BAGWISE_CACHE"):
        get(server, tmp_path / "cache" / "set" / "data.bin")
    assert server.requests == []


def test_other_kinds_of_address_are_refused(target, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(CONTENT)
    with pytest.raises(DownloadError, match="only http and https"):
        fetch(secret.as_uri(), target, SHA, 300_000)


def test_two_at_once(server, target):
    results = []
    threads = [threading.Thread(target=lambda: results.append(get(server, target))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4 and target.read_bytes() == CONTENT
    assert files_beside(target) == ["data.bin"]


SCRIPT = """
import sys
from bagwise.datasets.download import fetch
fetch(sys.argv[1], sys.argv[2], sys.argv[3], 300_000)
"""


def test_nothing_is_written_into_a_pipe(server, target):
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, server.url, str(target), SHA], capture_output=True, timeout=60
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")


def test_a_terminal_sees_progress(server, target):
    ours, theirs = pty.openpty()
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, server.url, str(target), SHA],
        stderr=theirs,
        timeout=60,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(theirs)
    assert run.returncode == 0
    assert b"data.bin" in os.read(ours, 1 << 16)
    os.close(ours)


# ---------------------------------------------------------------------- where files are looked for


@pytest.fixture
def public(server, monkeypatch, tmp_path):
    monkeypatch.setenv("BAGWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("BAGWISE_DATA", raising=False)
    return PublicFile("set", "data.bin", SHA, len(CONTENT), server.url)


def test_cache_folder_comes_from_the_environment(public, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    assert public.obtain() == tmp_path / "cache" / "set" / "data.bin"


@pytest.mark.parametrize("packed", [False, True])
def test_the_users_folder_comes_first(public, server, monkeypatch, tmp_path, packed):
    public.obtain()
    folder = tmp_path / "mine" / "set"
    folder.mkdir(parents=True)
    if packed:
        (folder / "data.bin.gz").write_bytes(gzip.compress(CONTENT))
    else:
        (folder / "data.bin").write_bytes(CONTENT)
    monkeypatch.setenv("BAGWISE_DATA", str(tmp_path / "mine"))
    assert public.obtain(verify=True).parent == folder
    monkeypatch.delenv("BAGWISE_DATA")
    assert public.obtain(tmp_path / "mine").parent == folder
    assert len(server.requests) == 1


def test_the_users_files_are_checked_on_request(public, tmp_path):
    folder = tmp_path / "mine" / "set"
    folder.mkdir(parents=True)
    (folder / "data.bin").write_bytes(b"changed by me")
    assert public.obtain(tmp_path / "mine").parent == folder
    with pytest.raises(DataError, match=r"data\.bin: .*checksum"):
        public.obtain(tmp_path / "mine", verify=True)
    (folder / "data.bin").unlink()
    (folder / "data.bin.gz").write_bytes(gzip.compress(CONTENT)[:-100])
    with pytest.raises(DataError, match="cannot be read"):
        public.obtain(tmp_path / "mine", verify=True)


def test_without_download(public, server):
    with pytest.raises(DownloadError, match=r"not at hand.*BAGWISE_DATA"):
        public.obtain(download=False)
    public.obtain()
    assert public.obtain(download=False) == public.cached
    public.cached.write_bytes(b"damaged")
    with pytest.raises(DownloadError, match="not at hand"):
        public.obtain(download=False)
    assert len(server.requests) == 1


def test_a_file_without_address_says_what_to_do(public):
    with pytest.raises(DownloadError, match=r"cannot be downloaded.*data\.bin\.gz.*BAGWISE_DATA"):
        PublicFile("set", "data.bin", SHA, 3).obtain()
