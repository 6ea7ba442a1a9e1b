"""Mistakes of users and faults of the machine are one line, and leave nothing half written."""

import json
import os

import numpy as np
import pytest
from command_line import SMALL, refuses, run

import bagwise
from bagwise import Bags, Dataset, actions
from bagwise.cli.typed import assignments, in_options, literal
from bagwise.errors import BagwiseError

FIT_LOGISTIC = ["fit", "digits", *SMALL, "-m", "SingleInstanceLogisticRegression", "-o", "x.skops"]


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


def test_files_that_are_not_what_they_seem(digits_for_commands, tmp_path):
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes((digits_for_commands / "test.parquet").read_bytes()[:500])
    refuses(run("info", damaged), "damaged.parquet")
    refuses(
        run("score", digits_for_commands / "test.parquet", digits_for_commands / "test.parquet"),
        "test.parquet",
        "model",
    )
    refuses(run("info", tmp_path / "no.skops"), "no such file")
    out = tmp_path / "found.xlsx"
    refuses(
        run("predict", digits_for_commands / "dummy.skops", digits_for_commands / "test.parquet", "-o", out),
        ".xlsx",
        ".csv",
    )
    assert os.listdir(tmp_path) == ["damaged.parquet"]


def test_model_and_data_that_do_not_fit(digits_for_commands, tmp_path):
    other = Dataset(Bags.from_list([np.ones((2, 3)), np.ones((1, 3))]), [["wren"], ["robin"]])
    bagwise.write(other, tmp_path / "birds.parquet")
    refuses(
        run(
            "predict",
            digits_for_commands / "logistic.skops",
            tmp_path / "birds.parquet",
            "-o",
            tmp_path / "x.csv",
        ),
        "64",
    )
    refuses(
        run("score", digits_for_commands / "dummy.skops", tmp_path / "birds.parquet"),
        "no label in common",
        "wren",
    )
    needs = ["-m", "SingleInstanceLogisticRegression", "-o", tmp_path / "m.skops"]
    refuses(run("fit", tmp_path / "birds.parquet", *needs), "instance labels")
    assert os.listdir(tmp_path) == ["birds.parquet"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(digits_for_commands, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    refuses(run("convert", digits_for_commands / "test.parquet", locked / "x.npz"), "permission")


def test_debug_shows_where(digits_for_commands):
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


def test_warnings_are_one_line(digits_for_commands, tmp_path):
    model = ["-m", "SingleInstanceLogisticRegression", "-o", tmp_path / "m.skops", "-p", "max_iter=1"]
    result = run("fit", digits_for_commands / "train.parquet", *model, "--json")
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
