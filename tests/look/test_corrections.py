"""The file of corrections: appended to, never rewritten, safe against kills and company."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from bagwise.errors import DataError
from bagwise.look import Corrections


@pytest.fixture
def path(tmp_path):
    return tmp_path / "corrections.jsonl"


def test_lines_say_who_when_what(path):
    kept = Corrections(path, "birds", author="ada", model="m.skops")
    kept.add("a.wav", answer="yes", part=2, label="wren", before={"label": "robin", "probability": 0.4})
    (line,) = path.read_text().splitlines()
    entry = json.loads(line)
    assert entry["author"] == "ada" and entry["model"] == "m.skops" and entry["data"] == "birds"
    assert entry["before"] == {"label": "robin", "probability": 0.4}
    assert entry["after"] == {"answer": "yes", "label": "wren"} and entry["time"].endswith("+00:00")


def test_answers_for_parts(path):
    kept = Corrections(path, "birds")
    kept.add("a", answer="no", part=0, label="wren")
    kept.add("a", answer="yes", part=0, label="robin")
    assert kept.part("a", 0).label == "robin" and kept.part("a", 0).not_labels == {"wren"}
    kept.add("a", answer="unsure", part=0)
    assert kept.part("a", 0).unsure and kept.part("a", 0).label is None
    kept.add("a", answer="none", part=0)
    assert kept.part("a", 0).none
    kept.add("a", answer="cleared", part=0)
    assert not kept.part("a", 0).given and kept.parts("a") == {}


def test_answers_for_bags(path):
    kept = Corrections(path, "birds")
    kept.add("a", answer="no", label="wren")
    kept.add("a", answer="accepted", labels=["robin"])
    assert kept.bag("a") == {"wren": "no", "robin": "yes"} and kept.accepted("a")
    kept.add("a", answer="cleared", label="wren")
    assert kept.bag("a") == {"robin": "yes"}
    for wrong in (
        {"answer": "maybe"},
        {"answer": "yes"},
        {"answer": "none"},
        {"answer": "accepted", "part": 1},
    ):
        with pytest.raises(DataError):
            kept.add("a", **wrong)


def test_undo_is_a_line_too(path):
    kept = Corrections(path, "birds")
    first = kept.add("a", answer="yes", label="wren")
    kept.add("a", answer="no", label="wren")
    assert kept.undo()["after"]["answer"] == "no" and kept.bag("a") == {"wren": "yes"}
    assert kept.undo(first["id"])["id"] == first["id"] and kept.bag("a") == {}
    assert kept.undo() is None and kept.undo(first["id"]) is None
    assert len(path.read_text().splitlines()) == 4
    assert Corrections(path, "birds").bag("a") == {}


def test_two_programs_see_each_other(path):
    one, two = Corrections(path, "birds", author="one"), Corrections(path, "birds", author="two")
    one.add("a", answer="yes", label="wren")
    two.add("a", answer="yes", label="robin")
    assert one.refresh() and one.bag("a") == two.bag("a") == {"wren": "yes", "robin": "yes"}
    assert not one.refresh()
    other = Corrections(path, "frogs")
    assert other.entries == [] and other.damaged == 0


def test_damage_is_skipped_and_counted(path):
    kept = Corrections(path, "birds")
    kept.add("a", answer="yes", label="wren")
    with open(path, "ab") as file:
        file.write(
            b'{"id": 1}\nnot json\n[]\n'
            b'{"data": "birds", "id": "x", "bag": "a", "part": -1, "after": {"answer": "yes"}}\n'
        )
        file.write(b"x" * 200_000 + b"\n")
        file.write(b'{"data": "birds", "id": "cut o')  # killed here
    kept.add("a", answer="yes", label="robin")
    again = Corrections(path, "birds")
    assert kept.bag("a") == again.bag("a") == {"wren": "yes", "robin": "yes"}
    assert again.damaged == 6 == kept.damaged


def test_file_that_was_removed_or_replaced(path):
    kept = Corrections(path, "birds")
    kept.add("a", answer="yes", label="wren")
    path.unlink()
    assert kept.refresh() and kept.bag("a") == {}
    Corrections(path, "birds").add("b", answer="yes", label="gull")
    assert kept.refresh() and kept.bags() == ["b"]


_WRITER = """
import sys
from bagwise.look import Corrections
kept = Corrections(sys.argv[1], "birds", author=sys.argv[2])
print("ready", flush=True)
number = 0
while True:
    kept.add(f"bag{number}", answer="yes", label="wren")
    print(number, flush=True)  # told only after it is kept
    number += 1
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_killed_writers_lose_nothing_that_was_told(path, tmp_path):
    outs = [open(tmp_path / f"out{k}", "w+") for k in range(2)]  # noqa: SIM115
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(path), f"w{k}"], stdout=out, env=os.environ)
        for k, out in enumerate(outs)
    ]
    end = time.monotonic() + 60
    while time.monotonic() < end and (not path.exists() or path.stat().st_size < 20_000):
        time.sleep(0.02)
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    kept = Corrections(path, "birds")
    assert kept.damaged <= len(writers)  # a last line of each may be cut off
    for k, out in enumerate(outs):
        out.seek(0)
        told = [int(line) for line in out.read().splitlines()[1:] if line]
        out.close()
        found = [e["bag"] for e in kept.entries if e["author"] == f"w{k}"]
        assert found[: len(told)] == [f"bag{n}" for n in told]
    kept.add("last", answer="yes", label="wren")
    assert "last" in Corrections(path, "birds").bags()
