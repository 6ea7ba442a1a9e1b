"""Gathering into shards: a stream, with the recipe in the manifest; stopped and gone on; models keep it."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import bagwise
from bagwise import ShardedBags, actions
from bagwise.cli import app
from bagwise.datasets import make_documents
from bagwise.errors import DataError, DataWarning
from bagwise.media import gather, pieces
from bagwise.shards.writer import ShardWriter


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder of texts and a table of labels, in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAGWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pieces, "FILES", 3)
    make_documents("articles", 12, labels="topics.csv")
    return tmp_path


def same(shards, dataset):
    """The same bags, places and labels."""
    data = shards.load()
    assert data.bags.equals(dataset.bags)
    assert data.label_sets == dataset.label_sets and data.label_names == dataset.label_names
    for name, values in dataset.bags.instance_info.items():
        np.testing.assert_array_equal(data.bags.instance_info[name], values)


@pytest.mark.parametrize("params", [{}, {"cut": "paragraphs", "features": "tf-idf"}])
@pytest.mark.filterwarnings("ignore::bagwise.errors.DataWarning")
def test_shards_hold_what_a_file_would(place, params):
    said = []
    done = actions.gather("articles", "parts/", "topics.csv", params=params, part_bytes=3000, say=said.append)
    expected = gather("articles", "topics.csv", params=params)
    shards = ShardedBags.open("parts")
    assert done["n_parts"] == shards.n_parts > 1 and done["n_bags"] == 12
    same(shards, expected)
    assert json.dumps(shards.recipe) == json.dumps(expected.recipe)
    assert shards.part(0).recipe == expected.recipe and shards.sample(3).recipe == expected.recipe
    assert actions.info("parts")["recipe"] == done["recipe"] == actions.info("parts/")["recipe"]
    assert said[0] == "found 12 text files (12 .txt)" and said[1].startswith("topics.csv")


def test_a_fit_keeps_the_recipe(place):
    actions.gather("articles", "parts/", "topics.csv", part_bytes=100_000)
    params = {"statistics": ["mean"], "max_iter": 3}
    done = actions.fit("parts", "PooledLogisticRegression", params, out="m.skops")
    assert done["recipe"].startswith("text by TextToBags")
    make_documents("new", 4, labels="new.csv", random_state=1)
    actions.predict("m.skops", "new", "found.csv")  # raw files
    assert len((place / "found.csv").read_text().splitlines()) == 5
    actions.predict("m.skops", "parts", "answers/")
    assert actions.score("m.skops", "parts")["measures"]


def test_all_that_is_wrong_is_said(place):
    (place / "articles" / "broken.csv").write_text("")
    (place / "articles" / "zz_unknown.txt").write_text("Nobody has labelled this. Not at all.")
    lines = (place / "topics.csv").read_text()
    (place / "topics.csv").write_text(lines + "gone.txt,music\n")
    done = actions.gather("articles", "parts/", "topics.csv", part_bytes=3000)
    assert done["without_labels"] == ["zz_unknown.txt"] and done["without_files"] == ["gone.txt"]
    assert done["n_bags"] == 12
    with pytest.raises(DataError, match="holds shards already"):
        actions.gather("articles", "parts/", "topics.csv")
    with pytest.raises(DataError, match="no labels for zz_unknown"):
        actions.gather("articles", "other/", "topics.csv", strict=True)
    with pytest.raises(DataError, match=r"a folder \(parts3/\) becomes shards"):
        actions.gather("articles", "parts3", "topics.csv")
    actions.gather("articles", "bare/")
    bare = ShardedBags.open("bare")
    assert not bare.has_labels and len(bare) == 13
    with pytest.raises(DataError, match="no labels to learn from"):
        actions.fit("bare", "PooledLogisticRegression", out="x.skops")


def test_shards_that_lie_among_the_files(place):
    actions.gather("articles", "articles/parts/", "topics.csv", part_bytes=100_000)
    assert len(ShardedBags.open("articles/parts")) == 12


class Stopped(BaseException):
    pass


def test_a_gather_that_was_stopped_goes_on(place, monkeypatch):
    write, left = ShardWriter._write, [2]

    def stop(self, data):
        write(self, data)
        left[0] -= 1
        if not left[0]:
            raise Stopped

    monkeypatch.setattr(ShardWriter, "_write", stop)
    with pytest.raises(Stopped):
        actions.gather("articles", "parts/", "topics.csv", part_bytes=3000)
    files = {p.name: p.stat().st_mtime_ns for p in (place / "parts").glob("part-*")}
    assert len(files) == 2
    left[0] = -1
    with pytest.raises(DataError, match="another recipe"):
        actions.gather("articles", "parts/", "topics.csv", part_bytes=3000, params={"cut": "paragraphs"})
    said = []
    actions.gather("articles", "parts/", "topics.csv", part_bytes=3000, say=said.append)
    assert any("going on" in line for line in said)
    assert all((place / "parts" / name).stat().st_mtime_ns == when for name, when in files.items())
    actions.gather("articles", "whole/", "topics.csv", part_bytes=3000)
    one, other = ShardedBags.open("parts"), ShardedBags.open("whole")
    assert one.fingerprint == other.fingerprint


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(os.name == "nt", reason="no SIGINT to a process")
def test_the_command(place):
    code = app(["gather", "articles", "-o", "parts/", "-l", "topics.csv", "--part-mb", "0.003"],
               standalone_mode=False)  # fmt: skip
    assert code in (0, None) and ShardedBags.open("parts").n_parts > 1
    make_documents("many", 400, labels="many.csv")
    command = [sys.executable, "-m", "bagwise", "gather", "many", "-o", "long/", "-l", "many.csv",
               "--part-mb", "0.02", "--no-cache"]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (place / "long" / "part-00001.parquet").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    told = process.communicate()[1]
    if process.returncode:  # it may have been faster than we are
        assert process.returncode == 130 and "the same command goes on" in told, told
        assert subprocess.run(command, capture_output=True).returncode == 0
    assert len(bagwise.ShardedBags.open("long")) == 400


def test_what_is_learned_from_some_files_is_said(place, monkeypatch):
    monkeypatch.setattr(pieces, "MOST_LEARNED", 5)
    said = []
    with pytest.warns(DataWarning, match="learned from all files together"):
        actions.gather("articles", "parts/", "topics.csv", params={"features": "tf-idf"}, say=said.append)
    assert "learning from 5 of 12 files, evenly spaced" in said


@pytest.mark.filterwarnings("ignore")
def test_the_bar_moves_in_every_reading(place):
    """Texts are read for the vocabulary, for the names of bags (a table holds several), and for bags."""
    told = []

    def step(steps, name, total):
        told.append((steps, name, total))

    actions.gather("articles", "parts/", "topics.csv", params={"features": "tf-idf"}, step=step, packed=True)
    assert len(told) == 36 and {(steps, total) for steps, _, total in told} == {(1, 36)}
    assert [name for _, name, _ in told[::12]] == [
        "learning: document_000.txt", "names: document_000.txt", "document_000.txt"
    ]  # fmt: skip
    told.clear()
    actions.gather("articles", "bare/", step=step)
    assert len(told) == 12 and told[-1] == (1, "document_011.txt", 12)
