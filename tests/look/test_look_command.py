"""The command ``bagwise look``."""

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from command_line import run

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")


def test_static_page_needs_no_server(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("look", "digits", "-O", "n_bags=12", "--static", "page.html", "--limit", 5)
    assert done.exit_code == 0 and "wrote 5 bags to page.html" in done.output
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html"]  # nobody corrected anything


def test_mistakes_are_told_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for args in (
        ("m.skops",),
        ("a", "b", "c"),
        ("nothing.parquet",),
        ("none.skops", "digits"),
        ("empty",),
        ("digits", "--static", tmp_path),
    ):
        done = run("look", *args)
        lines = done.stderr.splitlines()
        assert done.exit_code == 2 and len(lines) == 1 and lines[0].startswith("error: "), done.output


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_prints_its_address_and_ends_with_ctrl_c(tmp_path):
    command = [sys.executable, "-m", "bagwise", "look", "digits", "-O", "n_bags=12"]
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=env)
    try:
        address = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", process.stdout.readline())[0]
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(address.split("?")[0], timeout=20)
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        assert b"<main" in opener.open(address, timeout=20).read()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.stdout.close()
