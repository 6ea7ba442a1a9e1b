"""Who may ask: tokens, hosts, origins, sizes, and what answers may carry."""

import http.client
import json
import socket
import threading
import time

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("httpx")

from starlette.testclient import TestClient

from bagwise import Bags, Dataset
from bagwise.look import Corrections, Session, make_app, server
from bagwise.look.guard import LARGEST_BODY, POLICY
from bagwise.models import MIMLDummy

TOKEN = "s3cret-token-for-tests"
HERE = "http://127.0.0.1:8000"
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def session(tmp_path):
    rng = np.random.default_rng(0)
    bags = Bags.from_list(
        [rng.normal(size=(2, 3)) for _ in range(5)], bag_ids=[EVIL, "b", "c", "../d", "e/f"]
    )
    data = Dataset(bags, [[EVIL], ["b"], ["b"], [EVIL, "b"], ["b"]])
    model = MIMLDummy().fit(bags, data.Y)
    model.label_names_ = data.label_names
    session = Session(data, model, Corrections(tmp_path / "c.jsonl", "x"), root=tmp_path)
    session.finish()
    return session


@pytest.fixture
def client(session):
    return TestClient(make_app(session, TOKEN), base_url=HERE, follow_redirects=False)


def ask(client, path, method="GET", token=TOKEN, **headers):
    given = {"x-bagwise-token": token} if token else {}
    return client.request(
        method, path, headers={**given, **{k.replace("_", "-"): v for k, v in headers.items()}}
    )


def test_token(client):
    assert ask(client, "/api/overview").status_code == 200
    for token in (None, "", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "ü"):
        wanted = client.get("/api/overview", headers={"x-bagwise-token": (token or "").encode()})
        assert wanted.status_code == 403, token
        assert "token" in wanted.text and TOKEN not in wanted.text
    for path in ("/", "/static/app.js", "/api/bags", "/api/bag/0", "/media/0/sound", "/nothing"):
        assert ask(client, path, token=None).status_code == 403
    assert client.get(f"/api/overview?token={TOKEN}").status_code == 200
    assert client.get("/?token=wrong").status_code == 403


def test_token_is_compared_in_constant_time():
    import inspect

    from bagwise.look import guard

    assert "hmac.compare_digest" in inspect.getsource(guard.Guard._has_token)


def test_first_visit_moves_the_token_into_a_cookie(client):
    entered = client.get(f"/?token={TOKEN}")
    assert entered.status_code == 303 and entered.headers["location"] == "/"
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert client.get("/").status_code == 200  # the client keeps the cookie
    assert client.get("/api/overview", headers={"sec-fetch-site": "same-origin"}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "127.0.0.2"]
)
def test_foreign_hosts_are_refused(client, host):
    assert ask(client, "/api/overview", host=host).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:9", "localhost"])
def test_own_hosts(client, host):
    assert ask(client, "/api/overview", host=host).status_code == 200


def correct(client, body=None, content=None, **headers):
    given = {"x-bagwise-token": TOKEN, "content-type": "application/json", "origin": HERE}
    given |= {k.replace("_", "-"): v for k, v in headers.items()}
    given = {k: v for k, v in given.items() if v is not None}
    body = {"number": 1, "answer": "yes", "label": "b"} if body is None else body
    content = json.dumps(body) if content is None else content
    return client.post("/api/correct", content=content, headers=given)


def test_origins(client, session):
    for origin in ("http://evil.example", "https://127.0.0.1:8000", "http://127.0.0.1:8001", "null", ""):
        assert correct(client, origin=origin).status_code == 403, origin
    for site in ("cross-site", "same-site"):
        assert correct(client, sec_fetch_site=site).status_code == 403
        assert ask(client, "/api/overview", sec_fetch_site=site).status_code == 403
    assert session.corrections.entries == []
    assert correct(client).status_code == 200
    # with the cookie alone, a request that does not say whence it comes may not write
    client.get(f"/?token={TOKEN}")
    assert correct(client, origin=None, x_bagwise_token=None).status_code == 403
    assert len(session.corrections.entries) == 1


def test_links_from_elsewhere_may_only_navigate(client):
    asked = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert ask(client, f"/?token={TOKEN}", **asked).status_code == 303
    assert correct(client, **asked).status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "/static/../routes.py",
        "/static/..%2froutes.py",
        "/static/%2e%2e/routes.py",
        "/static//etc/passwd",
        "/static/..\\routes.py",
        "/static/",
        "/media/0/../../c.jsonl",
        "/media/../c.jsonl",
        "/media/%2e%2e%2fc.jsonl/sound",
        "/media/99/sound",
        "/media/0/original",
        "/api/bag/../../c.jsonl",
        "/c.jsonl",
        "/etc/passwd",
    ],
)
def test_no_path_outside(client, path, session):
    session.correct(0, "yes", label="b")  # so that the file exists
    found = ask(client, path)
    assert found.status_code in (400, 404), found.text
    assert "root:" not in found.text and "Routes" not in found.text and "corrections" not in found.text


def test_headers(client):
    for path, status in (("/", 200), ("/api/overview", 200), ("/nothing", 404), ("/static/app.js", 200)):
        found = ask(client, path)
        assert found.status_code == status
        assert found.headers["content-security-policy"] == POLICY
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["referrer-policy"] == "no-referrer"
        assert "server" not in found.headers and "access-control-allow-origin" not in found.headers
    refused = client.get("/", headers={"host": "evil.example"})
    assert refused.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY and "default-src 'none'" in POLICY and "http:" not in POLICY
    assert ask(client, "/api/overview").headers["content-type"] == "application/json"


def test_page_has_no_inline_script_and_no_outside_resource():
    from bagwise.look.server import static_files

    for name, content in static_files().items():
        text = content.decode()
        outside = text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in outside and "https://" not in outside and "//cdn" not in outside, name
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ):
            assert word not in text, (name, word)
    page = static_files()["index.html"].decode()
    modules = {name for name in static_files() if name.endswith(".js")}  # fetched at once, not one by one
    assert {name for name in modules if f'href="/static/{name}"' in page} == modules - {"app.js"}
    assert page.count("<script") == page.count('<script type="module" src=') and "onload" not in page
    assert "style=" not in page and "<style" not in page


def test_names_stay_text(client):
    found = ask(client, "/api/bag/0")
    assert found.json()["id"] == EVIL and found.headers["content-type"] == "application/json"
    assert EVIL in ask(client, "/api/overview").json()["names"]


def test_wrong_questions_are_told_in_one_line(client):
    for path in (
        "/api/bags?sort=magic",
        "/api/bags?offset=x",
        "/api/bag/77",
        "/api/curve?label=zz",
        "/api/next?by=zz",
    ):
        found = ask(client, path)
        assert found.status_code == 400 and "\n" not in found.json()["error"]
    for content in ("", "[]", "{", "1", '{"number": "1", "answer": "yes"}', '{"number": 1}', "[" * 5000):
        assert correct(client, content=content).status_code == 400, content
    assert correct(client, content_type="text/plain").status_code == 415
    assert correct(client, {"number": 99, "answer": "yes", "label": "b"}).status_code == 400
    assert (
        ask(client, "/api/correct").status_code == 405 and ask(client, "/", method="PUT").status_code == 405
    )


def test_large_bodies_are_refused(client, session):
    assert correct(client, content="x" * (LARGEST_BODY + 1)).status_code == 413

    def endless():
        for _ in range(1000):
            yield b"x" * 4096

    assert correct(client, content=endless()).status_code == 413
    assert session.corrections.entries == []


@pytest.fixture
def running(session):
    """A real server on a real socket; gives its port and token."""
    import uvicorn

    sock = server.listen()
    config = uvicorn.Config(
        make_app(session, TOKEN), log_level="error", lifespan="off", ws="none", http="h11"
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    end = time.monotonic() + 20
    while not running.started and time.monotonic() < end:
        time.sleep(0.01)
    yield sock.getsockname()[1]
    running.should_exit = True
    thread.join(10)


def test_a_gigabyte_is_refused_before_it_is_sent(running):
    lines = [
        "POST /api/correct HTTP/1.1",
        f"Host: 127.0.0.1:{running}",
        f"X-Bagwise-Token: {TOKEN}",
        "Content-Type: application/json",
        "Content-Length: 1073741824",
    ]
    with socket.create_connection(("127.0.0.1", running), timeout=20) as sock:
        sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        assert b" 413 " in sock.recv(4096).splitlines()[0]


def test_paths_as_they_are_on_the_wire(running):
    for path in (
        "/static/../guard.py",
        "/static/..%2f..%2fguard.py",
        "//etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
    ):
        connection = http.client.HTTPConnection("127.0.0.1", running, timeout=20)
        connection.putrequest("GET", path, skip_host=False)
        connection.putheader("x-bagwise-token", TOKEN)
        connection.endheaders()
        found = connection.getresponse()
        assert found.status in (400, 404) and b"root:" not in found.read()
        connection.close()


def test_listens_on_this_computer_only():
    sock = server.listen()
    assert sock.getsockname()[0] == "127.0.0.1"
    with pytest.raises(server.BagwiseError, match="--port"):
        server.listen(sock.getsockname()[1])
    sock.close()
