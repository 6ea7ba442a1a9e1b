"""Terminals, pipes and shells: processes of their own."""

import os
import subprocess
import sys

import pytest

import bagwise.cli.command as speech


def shell(*args, **options):
    command = [sys.executable, "-m", "bagwise", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


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


def test_tables_for_a_terminal(monkeypatch, capsys):
    from rich.console import Console

    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for width in (60, 200):
        monkeypatch.setattr(speech, "rich_console", lambda width=width: Console(width=width))
        speech.print_table(["label", "bags"], [["[red]wren[/red]", 3]], "lr")
        speech.say("a [bold] word")
        shown = capsys.readouterr().out
        assert "[red]wren[/red]" in shown and "a [bold] word" in shown
        assert max(map(len, shown.splitlines())) <= width


def test_pipe_has_neither_bars_nor_colours(digits_for_commands, tmp_path):
    out = tmp_path / "found.csv"
    done = shell(
        "predict", digits_for_commands / "dummy.skops", digits_for_commands / "test.parquet", "--out", out
    )
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
