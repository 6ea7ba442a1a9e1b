"""The command line, in this process and as a process of its own."""

import csv
import json
import os
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import bagwise
from bagwise import Bags, Dataset, actions
from bagwise.actions import verbs
from bagwise.cli import app, console
from bagwise.cli.typed import assignments, in_options, literal
from bagwise.datasets import make_digits, make_multi_view
from bagwise.errors import BagwiseError

SMALL = ["-O", "n_bags=60"]
FIT_LOGISTIC = ["fit", "digits", *SMALL, "-m", "SingleInstanceLogisticRegression", "-o", "x.skops"]


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="bagwise")


def shell(*args, **options):
    command = [sys.executable, "-m", "bagwise", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def refuses(result, *words):
    """One line on standard error, exit code 2, and nothing on standard output."""
    assert result.exit_code == 2, result.output
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: "), result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    for word in words:
        assert word in lines[0], lines[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data, a dummy, and a model that has learned."""
    place = tmp_path_factory.mktemp("cli")
    data = make_digits(n_bags=60, pictures=False)
    bagwise.write(data["train"], place / "train.parquet")
    bagwise.write(data["test"], place / "test.parquet")
    for name, file in [("MIMLDummy", "dummy"), ("SingleInstanceLogisticRegression", "logistic")]:
        done = run("fit", place / "train.parquet", "--model", name, "--out", place / f"{file}.skops")
        assert done.exit_code == 0, done.output
    return place


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


def test_info_of_a_name_a_file_and_a_model(folder):
    text = run("info", "digits", *SMALL).stdout
    assert "60" in text and "train (42 bags)" in text and "known for all instances" in text
    found = json.loads(run("info", folder / "test.parquet", "--json").stdout)
    assert found["n_bags"] == 18 and found["n_labels"] == 10
    assert sum(label["bags"] for label in found["labels"]) == pytest.approx(found["cardinality"] * 18)
    found = json.loads(run("info", folder / "logistic.skops", "--json").stdout)
    assert found["model"] == "SingleInstanceLogisticRegression" and found["labels"][3] == "3"
    assert "SingleInstanceLogisticRegression" in run("info", folder / "logistic.skops").stdout


def test_info_of_a_part():
    found = json.loads(run("info", "digits", *SMALL, "--part", "test", "--json").stdout)
    assert found["n_bags"] == 18
    refuses(run("info", "digits", *SMALL, "--part", "nowhere"), "nowhere", "train, test")


def test_convert(folder, tmp_path):
    done = run("convert", folder / "test.parquet", tmp_path / "test.npz", "--json")
    assert json.loads(done.stdout)["n_bags"] == 18
    assert bagwise.read(tmp_path / "test.npz").bags.equals(bagwise.read(folder / "test.parquet").bags)


def test_fit_with_parameters(folder, tmp_path):
    out = tmp_path / "model.skops"
    done = run(
        "fit", folder / "train.parquet", "-m", "singleinstancelogisticregression", "-o", out, "-p", "alpha=3"
    )
    assert done.exit_code == 0 and "fitted SingleInstanceLogisticRegression to 42 bags" in done.stdout
    assert bagwise.load(out).alpha == 3


def test_predict_to_csv_and_parquet_alike(folder, tmp_path):
    for name in ("found.csv", "found.parquet"):
        done = run("predict", folder / "logistic.skops", folder / "test.parquet", "--out", tmp_path / name)
        assert done.exit_code == 0 and "18 bags" in done.stdout
    table = pq.read_table(tmp_path / "found.parquet").to_pylist()
    with open(tmp_path / "found.csv", newline="") as handle:
        rows = list(csv.DictReader(handle))
    model, data = bagwise.load(folder / "logistic.skops"), bagwise.read(folder / "test.parquet")
    scores = model.decision_function(data.bags)
    for i, (ours, plain) in enumerate(zip(table, rows, strict=True)):
        assert ours["bag_id"] == plain["bag_id"] == data.bags.bag_ids[i]
        assert ours["labels"] == [name for name in data.label_names if ours[name] > 0]
        assert ";".join(ours["labels"]) == plain["labels"]
        assert [ours[name] for name in data.label_names] == pytest.approx(scores[i].tolist())
        assert float(plain["7"]) == pytest.approx(ours["7"])


def test_annotate(folder, tmp_path):
    out = tmp_path / "found.parquet"
    done = run("annotate", folder / "logistic.skops", folder / "test.parquet", "--out", out, "--proba")
    assert done.exit_code == 0, done.output
    data = bagwise.read(folder / "test.parquet")
    rows = pq.read_table(out).to_pylist()
    assert list(rows[0]) == ["bag_id", "instance", "label", "probability", "source"]
    assert [row["instance"] for row in rows] == [k for size in data.bags.sizes for k in range(size)]
    assert all(0 <= row["probability"] <= 1 for row in rows)
    right = [row["label"] == data.label_names[z] for row, z in zip(rows, data.instance_Y, strict=True)]
    assert np.mean(right) > 0.7


def test_annotate_within_known_labels(folder, tmp_path):
    out = tmp_path / "found.csv"
    assert (
        run("annotate", folder / "dummy.skops", folder / "test.parquet", "-o", out, "--use-labels").exit_code
        == 0
    )
    data = bagwise.read(folder / "test.parquet")
    known = dict(zip(data.bags.bag_ids.tolist(), data.label_sets))
    with open(out, newline="") as handle:
        for row in csv.DictReader(handle):
            assert row["label"] in known[row["bag_id"]]


def test_score(folder):
    found = json.loads(run("score", folder / "logistic.skops", folder / "test.parquet", "--json").stdout)
    assert found["measures"]["instance_accuracy_given_labels"] >= found["measures"]["instance_accuracy"] > 0.7
    assert found["not_learned"] == found["not_in_data"] == []
    assert "Hamming loss ↓" in run("score", folder / "logistic.skops", folder / "test.parquet").stdout


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


# ---------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["frobnicate"], ["frobnicate"]),
        (["info"], ["DATA"]),
        (["info", "no_such_set"], ["no_such_set", "bagwise list"]),
        (["info", "no_such_file.csv"], ["no_such_file.csv", "no such file"]),
        (["info", "digits", "-O", "n_bags"], ["name=value", "n_bags"]),
        (["info", "digits", "-O", "colour=red"], ["colour", "n_bags"]),
        (["info", "digits", "-O", "n_bags=many"], ["n_bags", "many"]),
        (["info", "digits", "--wrong"], ["--wrong"]),
        (["fit", "digits", "--model", "MIMLDummy"], ["--out"]),
        (["fit", "digits", *SMALL, "-m", "Perceptron", "-o", "x.skops"], ["Perceptron", "MIMLDummy"]),
        (["fit", "digits", *SMALL, "-m", "MIMLDummy", "-o", "x.skops", "-p", "alpha=1"], ["alpha", "none"]),
        (
            [*FIT_LOGISTIC, "-p", "beta=1"],
            ["beta", "alpha", "max_iter"],
        ),
        (
            [*FIT_LOGISTIC, "-p", "alpha=-1"],
            ["alpha", "-1"],
        ),
        (
            [*FIT_LOGISTIC, "-p", "alpha=high"],
            ["alpha", "high"],
        ),
        (["fit", "digits", *SMALL, "-m", "MIMLDummy", "-o", "."], ["folder"]),
        (["convert", "digits", "out.xyz", *SMALL], [".xyz", ".parquet"]),
        (["predict", "no.skops", "digits", "-o", "x.csv"], ["no.skops", "no such file"]),
        (["demo", "--n-bags", "3"], ["20"]),
        (["demo", "--n-bags", "few"], ["--n-bags"]),
    ],
)
def test_mistakes_are_one_line(args, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refuses(run(*args), *words)
    assert os.listdir(tmp_path) == []


def test_files_that_are_not_what_they_seem(folder, tmp_path):
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes((folder / "test.parquet").read_bytes()[:500])
    refuses(run("info", damaged), "damaged.parquet")
    refuses(run("score", folder / "test.parquet", folder / "test.parquet"), "test.parquet", "model")
    refuses(run("info", tmp_path / "no.skops"), "no such file")
    out = tmp_path / "found.xlsx"
    refuses(run("predict", folder / "dummy.skops", folder / "test.parquet", "-o", out), ".xlsx", ".csv")
    assert os.listdir(tmp_path) == ["damaged.parquet"]


def test_model_and_data_that_do_not_fit(folder, tmp_path):
    other = Dataset(Bags.from_list([np.ones((2, 3)), np.ones((1, 3))]), [["wren"], ["robin"]])
    bagwise.write(other, tmp_path / "birds.parquet")
    refuses(
        run("predict", folder / "logistic.skops", tmp_path / "birds.parquet", "-o", tmp_path / "x.csv"), "64"
    )
    refuses(run("score", folder / "dummy.skops", tmp_path / "birds.parquet"), "no label in common", "wren")
    needs = ["-m", "SingleInstanceLogisticRegression", "-o", tmp_path / "m.skops"]
    refuses(run("fit", tmp_path / "birds.parquet", *needs), "instance labels")
    assert os.listdir(tmp_path) == ["birds.parquet"]


def test_a_failure_leaves_the_older_file(folder, tmp_path, monkeypatch):
    out = tmp_path / "found.csv"
    out.write_text("older")
    calls = []

    def full(*args):
        calls.append(args)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return original(*args)

    original = verbs.prediction_table
    monkeypatch.setattr(verbs, "prediction_table", full)
    monkeypatch.setattr("bagwise.actions.matching._BLOCK", 20)
    refuses(run("predict", folder / "dummy.skops", folder / "test.parquet", "-o", out), "No space left")
    assert len(calls) == 2 and out.read_text() == "older" and os.listdir(tmp_path) == ["found.csv"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(folder, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    refuses(run("convert", folder / "test.parquet", locked / "x.npz"), "permission")


def test_debug_shows_where(folder):
    result = run("info", "no_such_set", "--debug")
    assert result.exit_code == 2 and "Traceback" in result.stderr and "error: no_such_set" in result.stderr
    assert "Traceback" in run("--debug", "info", "no_such_set").stderr
    assert "Traceback" in run("info", "--debug").stderr


def test_a_fault_of_bagwise_is_not_hidden(monkeypatch):
    monkeypatch.setattr(actions, "list_all", lambda name: 1 / 0)
    assert isinstance(run("list").exception, ZeroDivisionError)


def test_interrupt(monkeypatch):
    def stop(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(actions, "list_all", stop)
    result = run("list")
    assert result.exit_code == 130 and result.stderr == "interrupted\n" and result.stdout == ""


def test_not_enough_memory(monkeypatch):
    def stop(name):
        raise MemoryError

    monkeypatch.setattr(actions, "list_all", stop)
    refuses(run("list"), "memory")


def test_warnings_are_one_line(folder, tmp_path):
    model = ["-m", "SingleInstanceLogisticRegression", "-o", tmp_path / "m.skops", "-p", "max_iter=1"]
    result = run("fit", folder / "train.parquet", *model, "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["n_bags"] == 42
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["warning"]


def testassignments():
    given = ["a=0.5", "b=rbf", "c=true", "d=None", "e=[1, 2]", "f='1'", "g=", "h=x=y", "i=inf", "j=1e-3"]
    assert assignments(given, "--param") == {
        "a": 0.5, "b": "rbf", "c": True, "d": None, "e": [1, 2], "f": "1", "g": "", "h": "x=y",
        "i": float("inf"), "j": 1e-3,
    }  # fmt: skip
    for wrong in (["alpha"], ["=1"], ["a b=1"], ["a=1", "a=2"]):
        with pytest.raises(BagwiseError, match="--param"):
            assignments(wrong, "--param")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[A,B]", ["A", "B"]),
        ('["A","B"]', ["A", "B"]),
        ("[A, 'B, C', 3]", ["A", "B, C", 3]),
        ("[song thrush, o'hara]", ["song thrush", "o'hara"]),
        ("[[a,b],[c]]", [["a", "b"], ["c"]]),
        ("[]", []),
        ("[a", "[a"),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_lists_need_no_inner_quotes(text, value):
    assert literal(text) == value


def test_messages_speak_of_options():
    for python, typed in {
        "(name another with bag=...)": "(name another with --option bag=...)",
        "(labels=..., features=[...])": "(--option labels=..., --option features=[...])",
        "pick one with view=...": "pick one with --view ...",
        "Name one with read(path, format=...)": "Name one with --format ...",
        "leave out use_labels=True": "leave out --use-labels",
        "list_datasets() names all": "`bagwise list` names all",
        "such as alpha=0.5": "such as alpha=0.5",
        "with --option bag=...": "with --option bag=...",
    }.items():
        assert in_options(python) == typed


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


def test_did_you_mean(folder):
    wrong = ["fit", folder / "train.parquet", "-o", "x.skops", "-m"]
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


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("bagwise fit digits --model MIMLK", "MIMLKNN"),
        ("bagwise info mus", "musk1"),
        ("bagwise conv", "convert"),
    ],
)
def test_completion_for_shells(typed, offered):
    settings = {
        "_BAGWISE_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
    }
    code = "from bagwise.cli import main; main()"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=60)
    assert offered in done.stdout.splitlines() and done.stderr == ""


# ---------------------------------------------------------------------- terminals and pipes


def test_tables_for_a_terminal(monkeypatch, capsys):
    from rich.console import Console

    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for width in (60, 200):
        monkeypatch.setattr(console, "_console", lambda width=width: Console(width=width))
        console.print_table(["label", "bags"], [["[red]wren[/red]", 3]], "lr")
        console.say("a [bold] word")
        shown = capsys.readouterr().out
        assert "[red]wren[/red]" in shown and "a [bold] word" in shown
        assert max(map(len, shown.splitlines())) <= width


def test_pipe_has_neither_bars_nor_colours(folder, tmp_path):
    out = tmp_path / "found.csv"
    done = shell("predict", folder / "dummy.skops", folder / "test.parquet", "--out", out)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout == f"wrote the labels of 18 bags to {out}\n"


def test_mistake_in_a_process(tmp_path):
    done = shell("fit", "digits", "-m", "Nobody", "-o", tmp_path / "m.skops")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: no estimator 'Nobody'") and done.stderr.count("\n") == 1


def test_reader_that_leaves_early(tmp_path):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "bagwise", "list", "--json"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, timeout=300)
    os.close(write)
    assert done.stderr == b"" and done.returncode == 141


def test_output_without_arrows():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = shell("demo", "--help", env=environment)
    assert done.returncode == 0
    done = shell("list", env=environment)
    assert done.returncode == 0 and done.stderr == ""


def test_help_is_light():
    code = (
        "import sys; from bagwise.cli import app; app(['fit', '--help'], standalone_mode=False); "
        "heavy = {'numba', 'sklearn', 'matplotlib', 'pandas', 'pyarrow'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
