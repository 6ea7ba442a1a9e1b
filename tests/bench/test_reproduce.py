"""The command: what a user types and gets."""

import json
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from bagwise.actions import list_experiments, reproduce
from bagwise.cli import app
from bagwise.errors import BagwiseError


def typed(*words):
    return CliRunner().invoke(app, ["reproduce", *map(str, words)])


def test_list_names_every_experiment_with_its_parts():
    text = typed("list").output
    for name in ("ored-logistic:3", "ored-logistic:fig12", "mimlfast:fig4", "miml-gp:fig3", "mm-mil:2"):
        assert name in text
    assert "not public: HJA bird" in text and "not yet: " in text
    rows = {row["id"]: row for row in json.loads(typed("list", "ored-logistic", "--json").output)}
    assert rows["ored-logistic:3"]["methods"]["MLR"] == "implemented"
    assert rows["ored-logistic:3"]["datasets"]["Voc12"] == "not public"
    assert rows["ored-logistic:3"]["fits"] > rows["ored-logistic:3"]["short_fits"] > 0


def test_run_show_and_go_on(suite_file, tmp_path):
    out, page = tmp_path / "out", tmp_path / "docs" / "page.md"
    first = typed(f"{suite_file}:1", "--datasets", "A", "--methods", "ours", "--out", out)
    assert first.exit_code == 0 and "3 fits run now, 0 known" in first.output
    assert "▲ better" in first.output and "0.900±0.010" in first.output
    again = typed(suite_file, "--datasets", "A", "--methods", "ours", "--methods", "floor", "--out", out)
    assert "3 known from before" in again.output
    shown = typed(suite_file, "--show", "--out", out, "--page", page, "--short")
    assert shown.exit_code == 0 and "0 fits run now" in shown.output
    text = page.read_text()
    assert "| small:1 |" in text and "nobody has it" in text and "hours of CPU time" in text
    pictures = sorted(path.name for path in page.with_suffix("").iterdir())
    assert pictures[0] == "small-fig1a.svg" and all(f"page/{name}" in text for name in pictures)


def test_pages_in_every_format(suite_file, tmp_path):
    done = reproduce([str(suite_file)], tmp_path, methods=["ours", "floor", "-"], datasets=["A"], n_jobs=1)
    names = {path.rsplit("/", 1)[-1] for path in done["files"]}
    assert {"small-1.md", "small-1.tex", "small-1.csv", "small-fig1a.svg", "index.html"} <= names
    page = (tmp_path / "pages" / "index.html").read_text()
    HTMLParser().feed(page)
    assert "<svg" in page and "small:1" in page


def test_json_has_all_cells(suite_file, tmp_path):
    found = json.loads(typed(f"{suite_file}:2", "--out", tmp_path, "--json").output)
    cells = {(cell["dataset"], cell["measure"]): cell for cell in found["cells"]}
    assert cells["A", "n_bags"]["mean"] == 40 and cells["C", "n_bags"]["missing"] == "C: nobody has it"


def test_mistakes_are_one_line(suite_file, tmp_path):
    for words, message in (
        (["mimlfats:2"], "did you mean 'mimlfast'"),
        ([f"{suite_file}:1", "--methods", "MLR"], "no method 'MLR' here; there are"),
        ([f"{suite_file}:1", "--datasets", "Z"], "no data set 'Z' here"),
        (["nowhere.toml"], "nowhere.toml: No such file"),
    ):
        result = typed(*words, "--out", tmp_path)
        assert result.exit_code == 2 and message in result.output and len(result.output.splitlines()) == 1
    with pytest.raises(BagwiseError, match="no paper"):
        list_experiments(["nobody"])


def test_names_that_tables_show_work_too(tmp_path):
    (row,) = (r for r in list_experiments(["miml-gp:6"]))
    assert "GP-MIML (collective)" in row["methods"]
    done = reproduce(["miml-gp:6"], tmp_path, methods=["GP-MIML (collective)"], run=False)
    assert done["results"][0].methods == ("GP-MIML (collective)",)


def test_rows_from_elsewhere_and_a_summary(suite_file, tmp_path):
    """One data set here, one there; merged, nothing is run again and one page says what held."""
    here, there, page = tmp_path / "here", tmp_path / "there", tmp_path / "summary.md"
    reproduce([f"{suite_file}:1"], here, datasets=["A"], short=True)
    reproduce([f"{suite_file}:1"], there, datasets=["B"], short=True)
    done = reproduce([f"{suite_file}:1"], here, short=True, merge=[there], summary=page)
    assert done["run"] == 0 and done["known"] > 0
    text = page.read_text(encoding="utf-8")
    assert "## Small" in text and "nobody" in text and "**Held.**" in text
    assert (tmp_path / "summary" / "verdicts.png").exists()
    assert str(page) in done["files"]
