"""Every command of the command line, in this process."""

import csv
import json
import os

import numpy as np
import pyarrow.parquet as pq
import pytest
from command_line import SMALL, refuses, run

import bagwise
from bagwise.datasets import make_digits, make_multi_view

# ---------------------------------------------------------------------- every command


def test_version_and_help():
    assert run("--version").stdout == f"bagwise {bagwise.__version__}\n"
    alone = run()
    assert alone.exit_code == 0
    for command in ("demo", "list", "info", "convert", "fit", "predict", "annotate", "score"):
        assert command in alone.stdout
        assert run(command, "--help").exit_code == 0


def test_list():
    text = run("list").stdout
    assert "MIMLDummy" in text and "digits" in text and ".parquet" in text
    found = json.loads(run("list", "--json").stdout)
    assert {"estimators", "datasets", "formats"} == set(found)
    assert found["estimators"][0]["traits"]["device"] == ["cpu"]
    assert len(found["datasets"]) > len([line for line in text.splitlines() if "newsgroups" in line])


def test_list_by_name():
    assert json.loads(run("list", "dummy", "--json").stdout)["datasets"] == []
    assert "newsgroups/sci_med" in run("list", "newsgroups").stdout
    refuses(run("list", "no such thing"), "no such thing")


def test_info_of_a_name_a_file_and_a_model(digits_for_commands):
    text = run("info", "digits", *SMALL).stdout
    assert "60" in text and "train (42 bags)" in text and "known for all instances" in text
    found = json.loads(run("info", digits_for_commands / "test.parquet", "--json").stdout)
    assert found["n_bags"] == 18 and found["n_labels"] == 10
    assert sum(label["bags"] for label in found["labels"]) == pytest.approx(found["cardinality"] * 18)
    found = json.loads(run("info", digits_for_commands / "logistic.skops", "--json").stdout)
    assert found["model"] == "SingleInstanceLogisticRegression" and found["labels"][3] == "3"
    assert "SingleInstanceLogisticRegression" in run("info", digits_for_commands / "logistic.skops").stdout


def test_info_of_a_part():
    found = json.loads(run("info", "digits", *SMALL, "--part", "test", "--json").stdout)
    assert found["n_bags"] == 18
    refuses(run("info", "digits", *SMALL, "--part", "nowhere"), "nowhere", "train, test")


def test_convert(digits_for_commands, tmp_path):
    done = run("convert", digits_for_commands / "test.parquet", tmp_path / "test.npz", "--json")
    assert json.loads(done.stdout)["n_bags"] == 18
    assert bagwise.read(tmp_path / "test.npz").bags.equals(
        bagwise.read(digits_for_commands / "test.parquet").bags
    )


def test_fit_with_parameters(digits_for_commands, tmp_path):
    out = tmp_path / "model.skops"
    done = run(
        "fit",
        digits_for_commands / "train.parquet",
        "-m",
        "singleinstancelogisticregression",
        "-o",
        out,
        "-p",
        "alpha=3",
    )
    assert done.exit_code == 0 and "fitted SingleInstanceLogisticRegression to 42 bags" in done.stdout
    assert bagwise.load(out).alpha == 3


def test_predict_to_csv_and_parquet_alike(digits_for_commands, tmp_path):
    for name in ("found.csv", "found.parquet"):
        done = run(
            "predict",
            digits_for_commands / "logistic.skops",
            digits_for_commands / "test.parquet",
            "--out",
            tmp_path / name,
        )
        assert done.exit_code == 0 and "18 bags" in done.stdout
    table = pq.read_table(tmp_path / "found.parquet").to_pylist()
    with open(tmp_path / "found.csv", newline="") as handle:
        rows = list(csv.DictReader(handle))
    model, data = (
        bagwise.load(digits_for_commands / "logistic.skops"),
        bagwise.read(digits_for_commands / "test.parquet"),
    )
    scores = model.decision_function(data.bags)
    for i, (ours, plain) in enumerate(zip(table, rows, strict=True)):
        assert ours["bag_id"] == plain["bag_id"] == data.bags.bag_ids[i]
        assert ours["labels"] == [name for name in data.label_names if ours[name] > 0]
        assert ";".join(ours["labels"]) == plain["labels"]
        assert [ours[name] for name in data.label_names] == pytest.approx(scores[i].tolist())
        assert float(plain["7"]) == pytest.approx(ours["7"])


def test_annotate(digits_for_commands, tmp_path):
    out = tmp_path / "found.parquet"
    done = run(
        "annotate",
        digits_for_commands / "logistic.skops",
        digits_for_commands / "test.parquet",
        "--out",
        out,
        "--proba",
    )
    assert done.exit_code == 0, done.output
    data = bagwise.read(digits_for_commands / "test.parquet")
    rows = pq.read_table(out).to_pylist()
    assert list(rows[0]) == ["bag_id", "instance", "label", "probability", "source"]
    assert [row["instance"] for row in rows] == [k for size in data.bags.sizes for k in range(size)]
    assert all(0 <= row["probability"] <= 1 for row in rows)
    right = [row["label"] == data.label_names[z] for row, z in zip(rows, data.instance_Y, strict=True)]
    assert np.mean(right) > 0.7


def test_annotate_within_known_labels(digits_for_commands, tmp_path):
    out = tmp_path / "found.csv"
    assert (
        run(
            "annotate",
            digits_for_commands / "dummy.skops",
            digits_for_commands / "test.parquet",
            "-o",
            out,
            "--use-labels",
        ).exit_code
        == 0
    )
    data = bagwise.read(digits_for_commands / "test.parquet")
    known = dict(zip(data.bags.bag_ids.tolist(), data.label_sets))
    with open(out, newline="") as handle:
        for row in csv.DictReader(handle):
            assert row["label"] in known[row["bag_id"]]


def test_score(digits_for_commands):
    found = json.loads(
        run(
            "score", digits_for_commands / "logistic.skops", digits_for_commands / "test.parquet", "--json"
        ).stdout
    )
    assert found["measures"]["instance_accuracy_given_labels"] >= found["measures"]["instance_accuracy"] > 0.7
    assert found["not_learned"] == found["not_in_data"] == []
    assert (
        "Hamming loss ↓"
        in run("score", digits_for_commands / "logistic.skops", digits_for_commands / "test.parquet").stdout
    )


def test_demo(tmp_path):
    done = run("demo", "--n-bags", 40, "--out", tmp_path / "demo")
    assert done.exit_code == 0, done.output
    assert "logistic regression" in done.stdout and "instance accuracy ↑" in done.stdout
    assert (tmp_path / "demo" / "digits.png").read_bytes().startswith(b"\x89PNG")
    assert (
        (tmp_path / "demo" / "annotations.csv").read_text().startswith('"bag_id","instance","label","score"')
    )
    assert sorted(os.listdir(tmp_path / "demo")) == ["annotations.csv", "digits.png"]
    found = json.loads(run("demo", "--n-bags", 40, "--out", tmp_path / "demo", "--json").stdout)
    learned, counted = found["rows"]["BagClassifier"], found["rows"]["dummy"]
    assert learned["instance_accuracy"] > 3 * counted["instance_accuracy"]


def test_views(tmp_path):
    data = make_multi_view(n_bags=30)
    bagwise.write(data, tmp_path / "views.parquet")
    first = data.bags.view_names[0]
    found = json.loads(run("info", tmp_path / "views.parquet", "--json").stdout)
    assert [view["name"] for view in found["views"]] == list(data.bags.view_names)
    out = tmp_path / "model.skops"
    refuses(run("fit", tmp_path / "views.parquet", "-m", "MIMLDummy", "-o", out), "one view", first)
    done = run("fit", tmp_path / "views.parquet", "-m", "MIMLDummy", "-o", out, "--view", first)
    assert done.exit_code == 0, done.output
    refuses(run("score", out, tmp_path / "views.parquet", "--view", "none"), first)
    refuses(run("info", "digits", *SMALL, "--view", "x"), "one view")


# ---------------------------------------------------------------------- new users


@pytest.fixture
def recordings(tmp_path):
    """The same recordings with labels and without."""
    rng = np.random.default_rng(0)
    known, new = ["recording,low,high,label:wren,label:gull"], ["recording,low,high"]
    for bag in range(40):
        for _ in range(3):
            low, high = rng.normal(size=2) + [3 * (bag % 2), 0]
            known.append(f"r{bag},{low:.4f},{high:.4f},{bag % 2},{1 - bag % 2}")
            new.append(f"r{bag},{low:.4f},{high:.4f}")
    (tmp_path / "known.csv").write_text("\n".join(known))
    (tmp_path / "new.csv").write_text("\n".join(new))
    return tmp_path


def test_files_without_labels_are_predicted(recordings):
    where = ["-O", "bag=recording"]
    model, new = recordings / "m.skops", recordings / "new.csv"
    name = "SingleInstanceLogisticRegression"
    refuses(run("fit", recordings / "known.csv", "-m", name, "-o", model, *where), "instance labels")
    done = run("fit", recordings / "known.csv", "-m", "MIMLKNN", "-o", model, *where)
    assert done.exit_code == 0, done.output
    for command in ("predict", "annotate"):
        done = run(command, model, new, "-o", recordings / "found.csv", *where)
        assert done.exit_code == 0, done.output
    assert len((recordings / "found.csv").read_text().splitlines()) == 121
    shown = run("info", new, *where)
    assert "none in this file" in shown.output and "bag: recording; 2 features: low, high" in shown.output
    refuses(run("annotate", model, new, "-o", "x.csv", "--use-labels", *where), "leave out --use-labels")
    refuses(run("score", model, new, *where), "no labels to compare with")
    refuses(
        run("fit", new, "-m", "MIMLKNN", "-o", model, *where),
        "no labels to learn from",
        "--option labels=...",
    )
    refuses(run("info", new), "--option bag=...")


def test_fit_says_what_columns_were_taken_for(recordings):
    out, where = recordings / "m.skops", ["-O", "bag=recording", "-O", "labels=[label:wren,label:gull]"]
    done = run("fit", recordings / "known.csv", "-m", "MIMLDummy", "-o", out, *where)
    assert done.exit_code == 0, done.output
    assert "2 features: low, high" in done.output and "2 labels: " in done.output
    found = json.loads(
        run("fit", recordings / "known.csv", "-m", "MIMLDummy", "-o", out, *where, "--json").stdout
    )
    assert "2 features: low, high" in found["columns"]


def test_did_you_mean(digits_for_commands):
    wrong = ["fit", digits_for_commands / "train.parquet", "-o", "x.skops", "-m"]
    refuses(run(*wrong, "ORed"), "no estimator 'ORed'; did you mean", "ORedLogisticRegression")
    refuses(run(*wrong, "mimlfats"), "did you mean MIMLFast?")
    refuses(run(*wrong, "MIMLKNN", "-p", "n_reference=3"), "did you mean n_references?")
    refuses(run(*wrong, "zzz"), "known are")


def test_convert_says_what_csv_cannot_hold(tmp_path):
    data = make_digits(n_bags=20, pictures=False)
    bagwise.write(data, tmp_path / "d.parquet")
    done = run("convert", tmp_path / "d.parquet", tmp_path / "d.csv")
    assert done.exit_code == 0, done.output
    assert "warning: " in done.stderr and "left out" in done.stderr
    assert len(bagwise.read(tmp_path / "d.csv")) == 20
