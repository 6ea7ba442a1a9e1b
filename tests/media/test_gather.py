"""Gathering: media by what lies in a folder, labels, cache, recipes, and models that take raw files."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import bagwise
from bagwise import actions
from bagwise.cli import app
from bagwise.datasets import make_documents
from bagwise.errors import BagwiseError, DataError, DataWarning
from bagwise.media import gather
from bagwise.media.recognise import recognise


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder of texts and a table of labels, in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAGWISE_CACHE", str(tmp_path / "cache"))
    make_documents("articles", 12, labels="topics.csv")
    make_documents("new", 4, labels="new.csv", random_state=1)
    return tmp_path


def run(*arguments):
    """Exit code of the command."""
    return app([str(a) for a in arguments], standalone_mode=False)


# ---------------------------------------------------------------------- which medium


def test_the_medium_is_what_nearly_all_files_are(place):
    found = recognise("articles")
    assert found.medium == "text" and len(found.files) == 12 and found.said == "found 12 text files (12 .txt)"
    for k in range(11):
        (place / "articles" / f"{k}.wav").write_bytes(b"")
    with pytest.raises(DataError, match=r"articles: holds 11 audio files, 12 text files; .* medium=\.\.\."):
        recognise("articles")
    assert recognise("articles", "audio").said.startswith(
        "found 11 audio files (11 .wav); passed over 12 other"
    )
    assert recognise(["articles/0.wav", "articles/1.wav"]).medium == "audio"
    for k in range(11, 130):
        (place / "articles" / f"{k}.wav").write_bytes(b"")
    assert recognise("articles").medium == "audio"  # ten times as many


def test_tables_are_looked_into(place):
    (place / "texts.csv").write_text("id,text\n1,All about the moon. And stars.\n2,A violin is played.\n")
    assert recognise("texts.csv").medium == "text"
    (place / "odd.csv").write_text("")
    with pytest.raises(DataError, match=r"found 1 \.csv\); name it with medium=\.\.\.: text or embeddings"):
        recognise("odd.csv")


def test_a_folder_of_nothing_known(place, capsys):
    (place / "odd").mkdir()
    with pytest.raises(DataError, match=r"found no files at all.*medium=\.\.\."):
        recognise("odd")
    (place / "odd" / "program.exe").write_bytes(b"")
    with pytest.raises(DataError, match=r"found 1 \.exe"):
        recognise("odd")
    with pytest.raises(DataError, match=r"no audio files there \(\.wav.*found 1 \.exe"):
        recognise("odd", "audio")
    with pytest.raises(
        BagwiseError, match="no medium is called 'smell'; known are audio, image, text, embeddings"
    ):
        recognise("articles", "smell")
    assert "name it with --medium" in message(capsys, "gather", "odd", "-o", "x.parquet")


def message(capsys, *arguments):
    """The one line of an error, as a shell shows it."""
    capsys.readouterr()
    assert run(*arguments) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("found ")]
    assert len(lines) == 1, lines
    return lines[0]


def environment():
    root = os.path.dirname(os.path.dirname(bagwise.__file__))
    return os.environ | {"PYTHONPATH": root}


# ---------------------------------------------------------------------- labels and what is left out


def test_nothing_is_dropped_in_silence(place, capsys):
    table = (place / "topics.csv").read_text().splitlines()
    table[3] = "elsewhere.txt,space"  # document_002 has no labels
    (place / "topics.csv").write_text("\n".join(table))
    (place / "articles" / "zero.txt").write_bytes(b"\0" * 100)
    done = actions.gather("articles", "data.parquet", "topics.csv")
    assert done["without_labels"] == ["document_002.txt"] and done["without_files"] == ["elsewhere.txt"]
    assert [name for name, _ in done["unreadable"]] == ["zero.txt"] and done["n_bags"] == 11
    assert run("gather", "articles", "--labels", "topics.csv", "--out", "data.parquet") == 1
    said = capsys.readouterr().err
    assert "1 file without labels, left out:\n  document_002.txt" in said
    assert "1 file with labels, but not there:\n  elsewhere.txt" in said and "zero.txt: " in said
    with pytest.warns(DataWarning) as caught:
        data = gather("articles", "topics.csv")
    assert len(caught) == 3 and len(data) == 11
    with pytest.raises(DataError, match=r"zero\.txt: "):
        actions.gather("articles", "strict.parquet", "topics.csv", strict=True)
    (place / "articles" / "zero.txt").unlink()
    with pytest.raises(DataError, match=r"no labels for document_002\.txt"):
        actions.gather("articles", "strict.parquet", "topics.csv", strict=True)
    assert not (place / "strict.parquet").exists()


def test_labels_of_other_files_are_refused(place):
    (place / "topics.csv").write_text("file,labels\nx.txt,space\ny.txt,music\n")
    with pytest.raises(DataError, match=r"names 'x\.txt' and 1 more files, but none of the 12 files"):
        actions.gather("articles", "data.parquet", "topics.csv")
    (place / "topics.csv").write_text("file,labels\ndocument_000.txt,\n")
    with pytest.raises(DataError, match="there is no label in it"):
        actions.gather("articles", "data.parquet", "topics.csv")


def test_a_table_of_labels_among_the_files_is_none_of_them(place):
    os.rename("topics.csv", "articles/topics.csv")
    data = gather("articles", "articles/topics.csv")
    assert len(data) == 12 and data.has_labels


def test_options_of_the_table(place):
    text = (place / "topics.csv").read_text().replace("file,labels", "nr,what").replace(";", "/")
    (place / "topics.csv").write_text(text)
    data = gather(
        "articles", "topics.csv", options={"file_column": "nr", "label_columns": ["what"], "separator": "/"}
    )
    assert "space" in data.label_names and not any("/" in name for name in data.label_names)
    with pytest.raises(BagwiseError, match="labels cannot be read with the options"):
        gather("articles", "topics.csv", options={"colour": "red"})


def test_without_labels_and_by_folders(place):
    assert not gather("articles").has_labels
    for name in ("space", "music"):
        (place / "sorted" / name).mkdir(parents=True)
        (place / "sorted" / name / "a.txt").write_text(f"All about {name}.")
    data = gather("sorted", "folders")
    assert data.label_sets == [["music"], ["space"]] and data.bags.bag_ids.tolist() == [
        "music/a.txt",
        "space/a.txt",
    ]


def test_wrong_settings_are_said_before_the_work(place, capsys):
    for arguments, words in {
        ("-o", "data.xyz"): "no writer for the suffix '.xyz'",
        ("-o", "data.parquet", "-p", "colour=red"): "TextToBags has no parameter 'colour'; it has ",
        ("-o", "data.parquet", "-p", "cut=words"): "cut of TextToBags must be",
    }.items():
        assert words in message(capsys, "gather", "articles", *arguments)
    assert "no such file or folder" in message(capsys, "gather", "nowhere", "-o", "data.parquet")


# ---------------------------------------------------------------------- cache

SLOW = """
import sys, time
sys.path.insert(0, {here!r})
from media_toy import LinesToBags
from bagwise.media.gathering import collect
class SlowToBags(LinesToBags):
    def _part(self, source):
        time.sleep(0.05)
        open(sys.argv[2], "a").write("x")
        return super()._part(source)
collect(sys.argv[1], transformer=SlowToBags(), cache="cache", n_jobs=1)
"""


def test_a_killed_run_goes_on_where_it_was(place):
    (place / "lines").mkdir()
    for k in range(40):
        (place / "lines" / f"{k}.num").write_text(f"{k} {k}")
    code = SLOW.format(here=os.path.dirname(os.path.abspath(__file__)))
    command = [sys.executable, "-c", code, "lines", "count.txt"]
    first = subprocess.Popen(command, env=environment())
    while not (place / "count.txt").exists() or len((place / "count.txt").read_text()) < 5:
        assert first.poll() is None
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    made = len((place / "count.txt").read_text())
    assert made < 40
    subprocess.run(command, env=environment(), check=True)
    assert len((place / "count.txt").read_text()) <= 41  # the one that was being made, once more
    assert not list((place / "cache").rglob("*.new")) or made  # a half-written entry is never read


def test_the_cache_is_where_it_is_said_to_be(place):
    gather("articles", cache="here")
    assert list((place / "here").rglob("*.npz")) and not (place / "cache").exists()
    gather("articles", cache=False)
    assert not (place / "cache").exists()
    gather("articles")
    assert list((place / "cache" / "media").rglob("*.npz"))
    assert run("gather", "articles", "-o", "a.parquet", "--cache", "there") in (0, None)
    assert list((place / "there").rglob("*.npz"))


# ---------------------------------------------------------------------- recipes


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_the_recipe_travels_and_survives_cutting(place, suffix):
    actions.gather("articles", f"data{suffix}", "topics.csv", params={"cut": "paragraphs"})
    data = bagwise.read(f"data{suffix}")
    assert data.recipe["medium"] == "text" and data.recipe["params"]["cut"] == "paragraphs"
    assert data[2:5].recipe == data.recipe and data[[0]].recipe == data.recipe
    actions.convert(f"data{suffix}", "parts/")  # shards
    actions.convert("parts/", "other.parquet")
    assert bagwise.read("other.parquet").recipe == data.recipe
    with pytest.warns(DataWarning, match="the recipe, by which models take raw files"):
        actions.convert(f"data{suffix}", "other.csv")
    assert actions.info(f"data{suffix}")["recipe"] == "text by TextToBags, cut=paragraphs"


def test_a_damaged_recipe_is_one_line(place):
    actions.gather("articles", "data.parquet", "topics.csv")
    data = bagwise.read("data.parquet")
    good = dict(data.recipe)
    for wrong, words in [
        ({}, "not one that bagwise writes"),
        ({**good, "medium": "os.system"}, "not one that bagwise writes"),
        ({**good, "params": {"cut": "everything"}}, "cut of TextToBags must be"),
        ({**good, "params": {"a": 1}}, "has no parameter 'a'"),
        ({**good, "params": {"features": "tf-idf"}}, "lacks what was learned"),
        ({**good, "params": {"features": "tf-idf"}, "state": {"__class__": 1}}, "would set '__class__'"),
    ]:
        from dataclasses import replace

        bagwise.write(replace(data, recipe=wrong), "wrong.parquet")
        with pytest.raises(BagwiseError, match=words):
            actions.fit("wrong.parquet", "MIMLDummy", out="x.skops")


def test_a_model_takes_raw_files_and_gathered_data_alike(place):
    actions.gather("articles", "data.parquet", "topics.csv", params={"n_features": 64})
    done = actions.fit("data.parquet", "PooledLogisticRegression", {}, "model.skops")
    assert done["recipe"] == "text by TextToBags, n_features=64"
    actions.gather("new", "new.parquet", "new.csv", params={"n_features": 64})
    raw = actions.predict("model.skops", "new", "raw.parquet")
    actions.predict("model.skops", "new.parquet", "gathered.parquet")
    assert raw["rows"] == 4
    import pyarrow.parquet as pq

    assert pq.read_table("raw.parquet").equals(pq.read_table("gathered.parquet"))
    actions.predict("model.skops", ["new/document_000.txt", "new/document_003.txt"], "two.csv")
    assert len((place / "two.csv").read_text().splitlines()) == 3
    by_hand = bagwise.load("model.skops").predict(["new/document_000.txt"])
    assert by_hand.shape == (1, len(done["labels"]))
    score = actions.score("model.skops", "new", labels="new.csv")
    assert score["measures"] == actions.score("model.skops", "new.parquet")["measures"]
    actions.annotate("model.skops", "new", "parts.csv", use_labels=True, labels="new.csv")
    header = (place / "parts.csv").read_text().splitlines()[0]
    assert "start_char" in header and "file" in header
    facts = actions.info("model.skops")
    assert facts["model"] == "PooledLogisticRegression" and "text files (.txt" in facts["takes"]


def test_raw_files_that_cannot_be_read_do_not_stop_the_others(place, capsys):
    actions.gather("articles", "data.parquet", "topics.csv")
    actions.fit("data.parquet", "MIMLDummy", out="model.skops")
    (place / "new" / "zero.txt").write_bytes(b"\0" * 100)
    assert run("predict", "model.skops", "new", "--out", "found.csv") == 1
    assert (
        "zero.txt: " in capsys.readouterr().err and len((place / "found.csv").read_text().splitlines()) == 5
    )
    assert run("score", "model.skops", "new", "--labels", "new.csv", "--json") == 1
    assert json.loads(capsys.readouterr().out)["unreadable"][0][0] == "zero.txt"


def test_data_sets_of_models_without_a_recipe(place):
    actions.fit("digits", "MIMLDummy", out="digits.skops", options={"n_bags": 30})
    with pytest.raises(
        BagwiseError, match="several files or folders are for models that were fitted to gathered"
    ):
        actions.predict("digits.skops", ["a.csv", "b.csv"], "found.csv")
    with pytest.raises(BagwiseError, match="labels are given for raw files"):
        actions.score("digits.skops", "digits", labels="new.csv")
    for verb in (
        lambda: actions.predict("digits.skops", "articles", "found.csv"),
        lambda: actions.fit("articles"),
        lambda: actions.info("articles"),
    ):
        with pytest.raises(DataError, match=r"articles: found 12 text files .* make one with bagwise gather"):
            verb()


def test_the_file_to_be_written_is_none_of_the_files(place):
    (place / "rows").mkdir()
    for k in range(3):
        np.savez(place / "rows" / f"{k}.npz", features=np.ones((2, 3), np.float32))
    for _ in range(2):
        assert actions.gather("rows", "rows/data.npz")["n_bags"] == 3


def test_bags_without_instances_have_no_labels(place):
    """A recording in which nothing calls: learned without it, predicted as nothing."""
    bags = bagwise.Bags.from_list([[[0.0]], np.empty((0, 1)), [[1.0]], [[1.0]]], bag_ids=list("abcd"))
    bagwise.write(bagwise.Dataset(bags, [["x"], [], ["y"], ["y"]], instance_Y=[0, 1, 1]), "data.parquet")
    done = actions.fit("data.parquet", "SingleInstanceLogisticRegression", out="model.skops")
    assert done["empty"] == ["b"] and done["n_bags"] == 3
    found = actions.predict("model.skops", "data.parquet", "found.csv")
    assert found["rows"] == 4 and found["empty"] == ["b"]
    assert (place / "found.csv").read_text().splitlines()[-1] == '"b","",,'
    assert actions.annotate("model.skops", "data.parquet", "parts.csv")["rows"] == 3


def test_what_is_learned_from_all_files_is_said(place):
    with pytest.warns(DataWarning, match="learned from all files together"):
        data = gather("articles", "topics.csv", params={"features": "tf-idf"})
    assert "state" in data.recipe
    bagwise.write(data, "data.parquet")
    actions.fit("data.parquet", "MIMLDummy", out="model.skops")
    model = bagwise.load("model.skops")
    again = model[0].transform([bagwise.media.Source("articles/document_003.txt", "document_003.txt")])
    assert again.equals(data.bags[3:4])


@pytest.mark.parametrize(
    ("library", "suffix", "extra"),
    [("soundfile", ".wav", "audio"), ("PIL", ".png", "image"), ("h5py", ".h5", "slides")],
)
def test_a_missing_library_is_one_line_that_names_the_extra(
    place, monkeypatch, capsys, library, suffix, extra
):
    (place / "files").mkdir()
    (place / "files" / f"a{suffix}").write_bytes(b"RIFF")
    for name in [name for name in sys.modules if name.split(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    assert f"pip install 'bagwise[{extra}]'" in message(capsys, "gather", "files", "-o", "x.parquet")


def test_without_labels_nothing_is_learned_and_the_way_to_them_is_named(place, capsys):
    run("gather", "articles", "-o", "unlabelled.parquet")
    said = message(capsys, "fit", "unlabelled.parquet", "--out", "m.skops")
    assert "hold no labels to learn from" in said and "gather --labels" in said
    assert not (place / "m.skops").exists()
