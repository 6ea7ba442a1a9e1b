"""The page in a real browser, the one that the system has: the whole story, for each medium."""

import json
import shutil
import threading
import time

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("playwright.sync_api")

from playwright import sync_api

import bagwise
from bagwise import Bags, Dataset
from bagwise.datasets import make_collages, make_digits, make_documents, make_recordings
from bagwise.look import Corrections, Session, make_app, open_session, server, write_page
from bagwise.media import gather
from bagwise.models import MIMLDummy, SingleInstanceLogisticRegression

CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here; apt-get install chromium")

TOKEN = "token-of-the-browser-tests"
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


class Running:
    """The page of a session on a port of its own."""

    def __init__(self, session):
        import uvicorn

        self.session, self.sock = session, server.listen()
        config = uvicorn.Config(
            make_app(session, TOKEN), log_level="error", lifespan="off", ws="none", http="h11"
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.sock]}, daemon=True)

    def __enter__(self):
        self.session.start()
        self.thread.start()
        end = time.monotonic() + 30
        while not self.server.started and time.monotonic() < end:
            time.sleep(0.01)
        self.base = f"http://127.0.0.1:{self.sock.getsockname()[1]}/"
        return self

    def __exit__(self, *_):
        self.server.should_exit = True
        self.thread.join(10)

    def open(self, browser, place="", **context):
        context = {"viewport": {"width": 1200, "height": 800}, **context}
        page = browser.new_context(**context).new_page()
        page.set_default_timeout(20_000)
        page.problems = []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda line: line.type == "error" and page.problems.append(line.text))
        page.on("dialog", lambda dialog: page.problems.append(f"dialog {dialog.message}"))
        page.goto(f"{self.base}?token={TOKEN}")
        page.wait_for_selector("main h1, main h2")
        if place:
            page.goto(self.base + place)
            page.wait_for_selector(".bagpage")
        return page


def said(page, text):
    page.wait_for_function("text => document.getElementById('notice').textContent.includes(text)", arg=text)


def session_of(data, model, tmp_path, **more):
    model.label_names_ = data.label_names
    session = Session(data, model, Corrections(tmp_path / "corrections.jsonl", "data", author="ada"), **more)
    session.finish()
    return session


def last(tmp_path):
    return json.loads((tmp_path / "corrections.jsonl").read_text().splitlines()[-1])


@pytest.fixture(scope="module")
def digits():
    data = make_digits(n_bags=200)
    model = SingleInstanceLogisticRegression().fit(data["train"].labelled_bags(), data["train"].Y)
    return data["test"], model


NAMELESS = """() => [...document.querySelectorAll('button, a, input, select, [role=button], svg[role]')]
  .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length)))
  .map(e => e.outerHTML.slice(0, 120))"""


def test_digits_by_keyboard_alone(browser, digits, tmp_path):
    session = session_of(*digits, tmp_path)
    with Running(session) as running:
        page = running.open(browser)
        assert TOKEN not in page.url  # it went into a cookie
        assert (
            page.locator(".labels tbody tr").count() == 10 and page.locator(".calibration .dot").count() > 1
        )
        page.keyboard.press("/")
        page.keyboard.type(session.ids[7])
        page.wait_for_function("() => document.querySelectorAll('.bags tbody tr').length === 1")
        assert f"q={session.ids[7]}" in page.url
        page.fill("#search", "")
        page.wait_for_function("() => document.querySelectorAll('.bags tbody tr').length === 50")
        page.click(".rows thead >> text=uncertain")
        page.wait_for_function("() => document.querySelector('[aria-sort=descending]') !== null")
        order = session.table.rows(sort="uncertain", down=True)["rows"]
        assert page.locator(".rows tbody tr").first.get_attribute("data-number") == str(order[0]["number"])
        assert page.evaluate(NAMELESS) == []  # screen readers have a name for everything
        page.locator("body").press("j")
        page.keyboard.press("Enter")  # the link in focus
        page.wait_for_selector(".bagpage .tile")
        number = order[0]["number"]
        assert f"#/bag/{number}" in page.url and page.locator("h1").inner_text() == session.ids[number]
        page.locator("body").press("ArrowRight")
        page.wait_for_selector(".tile.focus")
        assert page.evaluate(NAMELESS) == []
        shown = page.locator(".tile.focus .caption").inner_text()
        page.keyboard.press("y")
        said(page, f"part 1: yes – {shown}")
        assert last(tmp_path)["after"] == {"answer": "yes", "label": shown} and last(tmp_path)["part"] == 0
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("l")
        page.wait_for_selector("dialog.chooser")
        page.keyboard.type("an owl")
        page.keyboard.press("Enter")
        said(page, "yes – an owl")
        assert last(tmp_path)["after"]["label"] == "an owl" and "an owl" in session.names
        page.keyboard.press("z")
        said(page, "undone")
        page.wait_for_function(f"() => document.querySelector('.tile .caption').textContent === '{shown}'")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("n")
        page.wait_for_selector(".bars .badge.no")
        assert last(tmp_path)["part"] is None and last(tmp_path)["before"]["predicted"] is not None
        page.keyboard.press("Escape")
        page.locator("h1").click()
        page.keyboard.press("Enter")  # right as shown, and on to the next
        page.wait_for_function(f"() => !location.hash.startsWith('#/bag/{number}')")
        assert last(tmp_path)["after"]["answer"] == "accepted"
        page.go_back()
        page.wait_for_selector(".badge.yes >> text=accepted")
        assert page.locator("h1").inner_text() == session.ids[number]
        page.reload()
        page.wait_for_selector(".bagpage")
        assert page.locator("h1").inner_text() == session.ids[number]
        page.keyboard.press("?")
        page.wait_for_selector("dialog.help >> text=another label")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")
        page.keyboard.press("o")
        page.wait_for_selector(".overview")
        assert page.problems == []


def test_thresholds_hover_and_two_windows(browser, digits, tmp_path):
    session = session_of(*digits, tmp_path)
    with Running(session) as running:
        page = running.open(browser, "#/bag/3?part=1")
        page.hover(".tile:nth-child(2)")
        page.wait_for_selector(".part h2 >> text=Part 2")
        page.mouse.move(5, 5)
        page.wait_for_selector(".part h2 >> text=Part 1")
        slider = page.locator(".bars input[type=range]").first
        slider.evaluate("e => { e.value = 0.9; e.dispatchEvent(new Event('input', { bubbles: true })); }")
        page.wait_for_selector(".effect >> text=precision")
        other = running.open(browser, "#/bag/3?part=1")
        other.locator("body").press("x")
        said(other, "none of the labels")
        page.wait_for_selector(".tile.none")  # within a few seconds, without a key
        assert page.problems == [] and other.problems == []


def test_names_from_files_stay_text(browser, tmp_path):
    bags = Bags.from_list([np.eye(3), np.ones((2, 3))], bag_ids=[EVIL, "b"], feature_names=[EVIL, "f", "g"])
    data = Dataset(bags, [[EVIL], [EVIL, "b"]], description=EVIL)
    session = session_of(data, MIMLDummy().fit(bags, data.Y), tmp_path)
    session.correct(0, "yes", part=0, label=EVIL)
    with Running(session) as running:
        page = running.open(browser)
        page.wait_for_selector(".rows tbody tr")
        page.goto(running.base + "#/bag/0?part=2")
        page.wait_for_selector(".parts tbody tr.focus")
        assert page.locator("h1").inner_text() == EVIL
        assert page.locator(".plane .point").count() == 3
        page.locator("body").press("y")
        said(page, EVIL)
        page.goto(running.base + "#/learn")
        page.wait_for_selector("td >> text=<script>")
        assert page.locator("main img, main script").count() == 0 and page.problems == []
        write_page(session, tmp_path / "page.html")
        page.goto(f"file://{tmp_path}/page.html#/bag/0")
        page.wait_for_selector(".parts")
        assert page.locator("h1").inner_text() == EVIL and page.problems == []


def test_recordings(browser, tmp_path):
    pytest.importorskip("soundfile")
    make_recordings(tmp_path / "rec", 4, labels=tmp_path / "rec.csv", seconds=3.0)
    data = gather(tmp_path / "rec", tmp_path / "rec.csv", params={"window": 1.0}, cache=False)
    session = session_of(data, MIMLDummy().fit(data.bags, data.Y), tmp_path, root=tmp_path / "rec")
    with Running(session) as running:
        page = running.open(browser, "#/bag/1")
        page.wait_for_function("() => document.querySelector('audio').readyState > 0")
        assert page.evaluate("document.querySelector('audio').duration") == pytest.approx(3.0, abs=0.05)
        page.locator(".region").nth(1).click()
        page.wait_for_selector(".region.focus")
        assert "1.00–2.00 s" in page.locator(".place").inner_text()
        page.keyboard.press("p")
        page.wait_for_function("() => document.querySelector('audio').currentTime >= 1")
        page.keyboard.press("l")
        page.keyboard.type("owl")
        page.keyboard.press("Enter")
        said(page, "part 2: yes – owl")
        page.keyboard.press("h")
        page.wait_for_selector(".ramp")
        page.goto(running.base + "#/learn")
        with page.expect_download() as download:
            page.click("text=Raven")
        assert download.value.suggested_filename == "data.raven.zip"
        assert page.problems == [] and last(tmp_path)["bag"] == session.ids[1]


def test_pictures(browser, tmp_path):
    pytest.importorskip("PIL")
    make_collages(tmp_path / "pic", 3, labels=tmp_path / "pic.csv")
    params = {"cut": "superpixels"} if _superpixels() else {}
    data = gather(tmp_path / "pic", tmp_path / "pic.csv", params=params, cache=False)
    session = session_of(data, MIMLDummy().fit(data.bags, data.Y), tmp_path, root=tmp_path / "pic")
    with Running(session) as running:
        page = running.open(browser, "#/bag/0")
        page.wait_for_function("() => document.querySelector('.frame img').naturalWidth === 192")
        sizes = page.evaluate(
            "['img', '.over'].map(s => document.querySelector('.frame ' + s).getBoundingClientRect().width)"
        )
        assert abs(sizes[0] - sizes[1]) < 1  # shapes lie over the picture
        page.locator(".region").first.focus()
        page.keyboard.press("Tab")
        page.keyboard.press("Shift+Tab")  # by keyboard, so that focus shows
        page.wait_for_selector(".region.focus")
        page.keyboard.press("u")
        said(page, "part 1: unsure")
        page.keyboard.press("h")
        page.wait_for_selector(".ramp")
        assert page.problems == []


def _superpixels():
    try:
        import skimage  # noqa: F401
    except ImportError:
        return False
    return True


def test_texts_and_slides(browser, tmp_path):
    make_documents(tmp_path / "doc", 4, labels=tmp_path / "doc.csv")
    data = gather(tmp_path / "doc", tmp_path / "doc.csv", cache=False)
    session = session_of(data, MIMLDummy().fit(data.bags, data.Y), tmp_path)
    with Running(session) as running:
        page = running.open(browser, "#/bag/0", color_scheme="dark")
        first = data.bags.instance_info["text"][0]
        assert page.locator(".text mark").first.inner_text().strip() == first
        page.locator(".text mark").nth(1).click()
        page.keyboard.press("n")
        page.wait_for_selector(".text mark.no")
        assert page.problems == []
    n = 6
    places = {
        "file": ["s.h5"] * n,
        "x": np.arange(n) % 3 * 256.0,
        "y": np.arange(n) // 3 * 256.0,
        "width": np.full(n, 256.0),
        "height": np.full(n, 256.0),
        "level": np.zeros(n, dtype=int),
    }
    bags = Bags(np.eye(n), [0, n], bag_ids=["s.h5"], instance_info=places)
    slide = Dataset(bags, [["tumour"]])
    session = session_of(slide, MIMLDummy().fit(bags, slide.Y), tmp_path)
    with Running(session) as running:
        page = running.open(browser, "#/bag/0", viewport={"width": 390, "height": 800})
        assert page.locator(".slide .region").count() == n
        page.locator(".slide .region").nth(4).click()
        page.click("button >> text=None")  # with a thumb
        said(page, "part 5: none")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390 and page.problems == []


def test_learn_again(browser, tmp_path):
    data = make_digits(n_bags=40)
    bagwise.write(data["train"], tmp_path / "digits.parquet")
    model = MIMLDummy().fit(data["train"].bags, data["train"].Y)
    model.label_names_ = data.label_names
    bagwise.save(model, tmp_path / "m.skops")
    session = open_session(tmp_path / "digits.parquet", tmp_path / "m.skops", author="ada")
    with Running(session) as running:
        page = running.open(browser, "#/bag/0?part=1")
        page.locator("body").press("y")
        said(page, "part 1: yes")
        page.goto(running.base + "#/learn")
        page.wait_for_selector("text=added as a bag of its own")
        page.click("#learn")
        page.wait_for_selector("text=Use the new model", timeout=90_000)
        assert page.locator("text=corrected parts right").count() == 1
        page.click("text=Use the new model")
        said(page, "m.again.skops")
        page.wait_for_selector("header >> text=m.again.skops")
        assert (tmp_path / "m.again.skops").exists() and page.problems == []


def test_static_page_is_complete(browser, digits, tmp_path):
    write_page(session_of(*digits, tmp_path), tmp_path / "page.html", limit=30)
    page = browser.new_page()
    problems, asked = [], []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: line.type == "error" and problems.append(line.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"file://{tmp_path}/page.html")
    page.wait_for_selector(".rows tbody tr")
    assert page.locator(".rows tbody tr").count() == 30
    page.click(".rows thead >> text=uncertain")
    page.click(".rows tbody tr")
    page.wait_for_selector(".tile")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("y")
    said(page, "for reading")
    page.keyboard.press("j")
    page.go_back()
    page.wait_for_selector(".bagpage")
    outside = [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]
    assert problems == [] and outside == []
