"""Running the command line in this process or in one of its own."""

from typer.testing import CliRunner

from bagwise.cli import app

SMALL = ["-O", "n_bags=60"]


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="bagwise")


def refuses(result, *words):
    """One line on standard error, exit code 2, and nothing on standard output."""
    assert result.exit_code == 2, result.output
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: "), result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    for word in words:
        assert word in lines[0], lines[0]
