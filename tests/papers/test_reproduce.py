"""The command: what a user types and gets."""

import json
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from bagwise.errors import BagwiseError
from papers.__main__ import app
from papers.reproduce import list_experiments, reproduce
from papers.rows import Store
from papers.suites import find_experiments
from papers.tasks import tasks_of


def typed(*words):
    return CliRunner().invoke(app, [*map(str, words)])


def test_list_names_every_experiment_with_its_parts():
    text = typed("list").output
    for name in ("ored-logistic:3", "ored-logistic:fig12", "mimlfast:fig4", "miml-gp:fig3", "mm-mil:2"):
        assert name in text
    assert "not public: HJA bird" in text and "not yet: " not in text
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
    beside = sorted(path.name for path in page.with_suffix("").iterdir())
    assert beside[:2] == ["rows.parquet", "small-fig1a.svg"] and all(
        f"page/{name}" in text for name in beside
    )


def test_the_rows_of_a_page_are_where_another_machine_goes_on_from(suite_file, tmp_path):
    page, only = tmp_path / "docs" / "page.md", {"datasets": ["A"], "methods": ["ours"], "n_jobs": 1}
    first = reproduce([f"{suite_file}:1"], tmp_path / "out", page=page, **only)
    assert str(page.with_suffix("") / "rows.parquet") in first["files"]
    again = reproduce([f"{suite_file}:1"], tmp_path / "new", merge=[page.with_suffix("")], page=page, **only)
    assert (first["run"], again["run"], again["known"]) == (3, 0, 3)
    cells = [[cell.mean for cell in done["results"][0].cells] for done in (first, again)]
    assert cells[0] == cells[1]
    # a page of what goes beyond the short run brings along its own rows alone
    target, beyond = f"{suite_file}:1", tmp_path / "docs" / "beyond.md"
    only["methods"] = ["ours", "tuned"]
    reproduce([target], tmp_path / "new", page=beyond, against_short=True, **only)
    of = find_experiments(target)
    short = {task.digest for suite, one in of for task in tasks_of(suite, one, short=True)}
    kept, rows = set(Store(beyond.with_suffix("")).rows()), set(Store(tmp_path / "new").rows())
    assert kept == rows - short and 0 < len(kept) < len(rows)


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


def test_a_page_of_what_goes_beyond_the_short_run(suite_file, tmp_path):
    out, page = tmp_path / "out", tmp_path / "full.md"
    some = ["--methods", "ours", "--methods", "tuned", "--out", out]
    asked = [f"{suite_file}:1", "--page", page, "--against-short", "--show", "--out", out]
    typed(f"{suite_file}:1", "--short", "--datasets", "A", "--datasets", "B", *some)
    assert typed(*asked).exit_code == 0
    nothing = page.read_text()
    assert "2 pairs of method and data set" in nothing  # tuned on A and B; ours is the same in both runs
    assert "0 were run in full, 0 in part and 2 not at all" in nothing
    assert "Nothing beyond the short run was run of small:1" in nothing and "Quality" not in nothing

    typed(f"{suite_file}:1", "--datasets", "A", *some)
    typed(*asked)
    text = page.read_text()
    assert "1 were run in full, 0 in part and 1 not at all" in text
    assert "| small:1 | A | tuned | – | – |" in text and "Quality" in text
    assert "| **A** |" in text and "| **B** |" not in text
    assert "1 cell run in full have a verdict" in text or "No cell has a verdict in both runs" in text
    for words in (["--short", "--page", page], []):
        told = typed(suite_file, "--against-short", "--show", "--out", out, *words)
        assert told.exit_code == 2 and "give --page, and no --short" in told.output


def test_changed_verdicts_are_told():
    from papers.pages.beyond import beyond_short
    from papers.pages.cells import Cell, ResultTable
    from papers.trials import Extent

    def tables(*means):
        given = {"std": 0.01, "published_mean": 0.7, "published_std": 0.02}
        cells = tuple(Cell("Scene", name, "auc", "higher", mean, **given) for name, mean in zip("ABC", means))
        return [ResultTable("p:1", "Quality", "Ten folds.", "A", ("Scene",), tuple("ABC"), ("auc",), cells)]

    extents = [
        Extent("p:1", "Scene", "A", 10, 10, 10, 10),
        Extent("p:1", "Scene", "B", 10, 10, 8, 8),
        Extent("p:1", "Scene", "C", 10, 10, 0, 0),  # the same fits as in the short run
        Extent("p:2", "Reuters", "A", 10, 2, 8, 0),
        Extent("p:3", "Reuters", "B", 10, 3, 8, 1),
    ]
    text = beyond_short(extents, tables(0.71, 0.60, 0.60), tables(0.61, 0.65, 0.70))
    assert "4 pairs" in text and "2 were run in full, 1 in part and 1 not at all" in text
    assert "| p:3 | Reuters | – | B (3 of 10 fits) | – |" in text
    assert "run of p:2: not" in text
    assert (
        "2 cells run in full have a verdict in both runs: 0 are inside or better in the short run, 1 in full"
        in text
    )
    assert "1 verdict changes:" in text
    assert "| p:1 | Scene | A | AUC ↑ | 0.70±0.02 | 0.61±0.01 ▼ worse | 0.71±0.01 ✓ inside | – |" in text
    same = beyond_short(extents, tables(0.71, 0.60, 0.60), tables(0.70, 0.60, 0.60))
    assert "No verdict changes." in same
