"""annotate --as, annotate --pictures and predict --as, from files to files as a user would."""

import csv
import json

import command_line
import numpy as np
import pytest

from bagwise import actions
from bagwise.datasets import make_documents, make_recordings
from bagwise.errors import BagwiseError, DataError
from bagwise.media.labels import read_labels

MODEL = "ORedLogisticRegression"


def run(*arguments):
    done = command_line.run(*arguments)
    return done.exit_code, done.output


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A model of documents, and new ones."""
    folder = tmp_path_factory.mktemp("texts")
    make_documents(folder / "old", 40, labels=folder / "topics.csv")
    make_documents(folder / "new", 3, random_state=1)
    actions.gather(folder / "old", folder / "old.parquet", folder / "topics.csv", cache=False)
    actions.fit(folder / "old.parquet", MODEL, out=folder / "model.skops")
    return folder


def test_label_studio_from_raw_texts(texts, tmp_path):
    code, said = run(
        "annotate", texts / "model.skops", texts / "new", "--out", tmp_path / "found", "--as", "label-studio",
        "--pictures", tmp_path / "pictures", "--no-cache",
    )  # fmt: skip
    assert code == 0 and "labelled places in 2 files" in said and "3 pictures" in said
    tasks = json.loads((tmp_path / "found/label_studio.json").read_text())
    assert [task["data"]["file"] for task in tasks] == [f"document_00{k}.txt" for k in range(3)]
    for task in tasks:  # the original text, and marks that fit it
        original = (texts / "new" / task["data"]["file"]).read_text()
        assert task["data"]["text"] == original
        *regions, whole = task["predictions"][0]["result"]
        assert regions and whole["type"] == "choices"
        for region in regions:
            value = region["value"]
            assert original[value["start"] : value["end"]] == value["text"]
            assert set(value["labels"]) <= set(whole["value"]["choices"])  # decided for the whole file
    assert sorted(p.name for p in (tmp_path / "pictures").iterdir()) == [
        f"document_00{k}.png" for k in range(3)
    ]
    files = [task["data"]["file"] for task in tasks]
    assert read_labels(tmp_path / "found/label_studio.json", files, "text").files_without == []


def test_joining_and_threshold(texts, tmp_path):
    common = (texts / "model.skops", texts / "new")
    joined = actions.annotate(*common, tmp_path / "a.json", kind="label-studio", cache=False)
    apart = actions.annotate(
        *common, tmp_path / "b.json", kind="label-studio", style={"merge": False}, cache=False
    )
    few = actions.annotate(
        *common, tmp_path / "c.json", kind="label-studio", style={"merge": False}, threshold=0.9, cache=False
    )
    assert joined["rows"] <= apart["rows"] and few["rows"] < apart["rows"]
    scores = [
        region["score"]
        for task in json.loads((tmp_path / "c.json").read_text())
        for region in task["predictions"][0]["result"][:-1]
    ]
    assert len(scores) == few["rows"] and min(scores, default=1) >= 0.9


def test_gathered_data_know_their_originals_by_folder(texts, tmp_path):
    common = (texts / "model.skops", texts / "old.parquet", tmp_path / "a.json")
    done = actions.annotate(*common, kind="label-studio")
    assert "taken from their parts" in done["notes"][0]
    done = actions.annotate(*common, kind="label-studio", originals=texts / "old")
    assert not done["notes"]
    (task, *_) = json.loads((tmp_path / "a.json").read_text())
    assert task["data"]["text"] == (texts / "old/document_000.txt").read_text()


def test_tables_as_before(texts, tmp_path):
    model, new = texts / "model.skops", texts / "new"
    code, said = run("annotate", model, new, "--out", tmp_path / "t.csv", "--no-cache")
    assert code == 0 and "instances to" in said
    code, _ = run("annotate", model, new, "--out", tmp_path / "folder", "--as", "csv", "--no-cache")
    assert code == 0
    assert (tmp_path / "folder/annotations.csv").read_bytes() == (tmp_path / "t.csv").read_bytes()
    files = [f"document_00{k}.txt" for k in range(3)]
    read = read_labels(tmp_path / "t.csv", files, "text")  # our own table is a table of labels
    assert len(read.spans) == len((tmp_path / "t.csv").read_text().splitlines()) - 1


def test_predict_json(texts, tmp_path):
    for arguments in (("--out", tmp_path / "p.json"), ("--out", tmp_path / "p.json", "--as", "json")):
        code, said = run("predict", texts / "model.skops", texts / "new", *arguments, "--no-cache")
        assert code == 0 and "3 bags" in said
        rows = json.loads((tmp_path / "p.json").read_text())
        assert [row["bag_id"] for row in rows] == [f"document_00{k}.txt" for k in range(3)]
    run("predict", texts / "model.skops", texts / "new", "--out", tmp_path / "p.csv", "--no-cache")
    with open(tmp_path / "p.csv", newline="") as file:
        table = list(csv.DictReader(file))
    for row, line in zip(rows, table, strict=True):
        assert ";".join(row["labels"]) == line["labels"]
        assert all(score == pytest.approx(float(line[name])) for name, score in row["scores"].items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("annotate", "--out", "x", "--as", "raven"),
            "raven is for audio, these files are text; choose csv, label-studio",
        ),
        (("annotate", "--out", "x", "--as", "word"), "written as csv, raven"),
        (("annotate", "--out", "x.docx", "--as", "csv"), "the suffix is '.docx'"),
        (("predict", "--out", "x.csv", "--as", "json"), "the suffix does not fit --as json"),
        (("predict", "--out", "x.json", "--as", "csv"), "the suffix does not fit --as csv"),
        (("predict", "--out", "x.csv", "--as", "raven"), "written as csv or json"),
        (("annotate", "--out", "x.csv", "--threshold", "0.5"), "threshold is for pictures and tools"),
        (("annotate", "--out", "x", "--as", "label-studio", "--threshold", "7"), "between 0 and 1, got 7"),
        (
            ("annotate", "--out", "x", "--as", "label-studio", "--originals", "nowhere"),
            "no such folder of originals",
        ),
    ],
)
def test_refused_before_any_work(texts, tmp_path, arguments, message, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, said = run(arguments[0], texts / "model.skops", texts / "new", *arguments[1:], "--no-cache")
    assert code == 2 and message in said and not list(tmp_path.iterdir())


def test_data_without_places(tmp_path):
    small = {"n_bags": 30}
    actions.fit("digits", "MIMLDummy", out=tmp_path / "m.skops", options=small)
    with pytest.raises(DataError, match="where in files the parts lie"):
        actions.annotate(tmp_path / "m.skops", "digits", tmp_path / "x", kind="coco", options=small)
    with pytest.raises(BagwiseError, match="only bags with places can be drawn"):
        actions.annotate(
            tmp_path / "m.skops", "digits", tmp_path / "x.csv", pictures=tmp_path / "p", options=small
        )
    assert not (tmp_path / "x.csv").exists()


def test_raven_from_recordings(tmp_path):
    pytest.importorskip("soundfile")
    make_recordings(tmp_path / "old", 20, labels=tmp_path / "species.csv", seconds=4)
    make_recordings(tmp_path / "new/deep", 2, seconds=4, random_state=1)
    (tmp_path / "new/silent.wav").write_bytes(b"not a sound")
    actions.gather(
        tmp_path / "old",
        tmp_path / "d.parquet",
        tmp_path / "species.csv",
        params={"cut": "calls"},
        cache=False,
    )
    actions.fit(tmp_path / "d.parquet", MODEL, out=tmp_path / "m.skops")
    code, said = run(
        "annotate", tmp_path / "m.skops", tmp_path / "new", "--out", tmp_path / "found", "--as", "raven",
        "--pictures", tmp_path / "pictures", "--no-cache",
    )  # fmt: skip
    assert code == 1 and "silent.wav" in said  # the rest went through
    tables = sorted(p.relative_to(tmp_path / "found").as_posix() for p in (tmp_path / "found").rglob("*.txt"))
    assert tables == [f"deep/recording_00{k}.Table.1.selections.txt" for k in range(2)]
    files = [f"deep/recording_00{k}.wav" for k in range(2)]
    found = read_labels(tmp_path / "found", files, "audio")
    assert found.spans and all(0 <= span.score <= 1 and span.high > span.low for span in found.spans)
    assert len(list((tmp_path / "pictures/deep").iterdir())) == 2
    # known labels of new files: only those are used
    (tmp_path / "known.csv").write_text("file,labels\nrecording_000.wav,wren\nrecording_001.wav,lark\n")
    actions.annotate(
        tmp_path / "m.skops", tmp_path / "new/deep", tmp_path / "k", kind="audacity", use_labels=True,
        labels=tmp_path / "known.csv", cache=False,
    )  # fmt: skip
    known = read_labels(tmp_path / "k", ["recording_000.wav", "recording_001.wav"], "audio")
    assert set(known.bag_labels["recording_000.wav"]) <= {"wren"}
    assert set(known.bag_labels["recording_001.wav"]) <= {"lark"}
    assert np.isfinite([span.start for span in known.spans]).all()
