"""Pages of results: nothing is lost or broken in any style."""

import html
import html.parser
import io
import re

import numpy as np
import pyarrow.csv
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.console import Console

from bagwise.errors import DataError
from papers.pages import plots
from papers.pages.cells import Cell, Curve, ResultFigure, ResultTable
from papers.pages.render import render, write
from papers.pages.styles import escape, latex_escape

STYLES = ("text", "rich", "markdown", "latex", "html")
ODD = ("R&D_1 50%", "a|b <i>x</i>", "{c} \\d $e^2~ #f", "[red]g[/] *h* `k`")
NOTE = "Bags <rebuilt> & 3 % lost_here"


def make_table(datasets=("Letter Frost", "Scene"), methods=("MLR", "SIM", "LSB"), n_measures=2, seed=0):
    rng = np.random.default_rng(seed)
    measures = ("hamming_loss_percent", "auc", "one_error", "coverage_norm", "ranking_loss")[:n_measures]
    cells = []
    for measure in measures:
        for i, d in enumerate(datasets):
            for j, m in enumerate(methods):
                place = (d, m, measure, "higher" if measure == "auc" else "lower")
                scale = 100 if measure.endswith("percent") else 1
                published = {"published_mean": round(scale * rng.uniform(0.1, 0.5), 1 if scale > 1 else 3)}
                published["published_std"] = None if j == 1 else round(scale * 0.02, 3)
                if j == len(methods) - 1 and i % 2:
                    cells.append(Cell(*place, missing=f"{m} is not implemented yet", **published))
                    continue
                values = published["published_mean"] + scale * (
                    0.03 * rng.normal() + 0.01 * rng.normal(size=5)
                )
                cells.append(
                    Cell(
                        *place,
                        float(values.mean()),
                        float(values.std(ddof=1)),
                        tuple(map(float, values)),
                        tuple(f"seed 0, fold {k}" for k in range(5)),
                        **published,
                        published_mark=("", "worse", "better")[j % 3],
                        note=NOTE if (i + j) % 2 else "",
                        fit_seconds=1.5 + i,
                        predict_seconds=0.25,
                        peak_mb=123.0 + j,
                    )
                )
    remarks = ("A remark & more.",)
    title, protocol = "Bag-level measures", "Ten folds."
    return ResultTable(
        "paper:3",
        title,
        protocol,
        methods[0],
        tuple(datasets),
        tuple(methods),
        measures,
        tuple(cells),
        remarks,
    )


FIGURE = ResultFigure(
    "paper:fig8",
    "Accuracy & share",
    "share_of bags",
    "accuracy, %",
    True,
    (Curve("M|R", (1.0, 10.0), (50.25, 60.5), (1.5, None)), Curve("S<M", (10.0,), (42.125,))),
    (Curve("M|R", (1.0, 10.0), (51.0, 61.0)),),
    ("Read off the plot.",),
)


def words(result, style):
    """What a reader sees, in one line."""
    page = render(result, style)
    if style == "rich":
        console = Console(width=100, file=io.StringIO())
        console.print(page)
        page = console.file.getvalue()
        assert "\x1b" not in page, "plain in a pipe"
        assert max(map(len, page.splitlines())) <= 100 and "…" not in page
    if style == "html":
        page = html.unescape(re.sub(r"<[^>]*>", " ", re.sub(r"<style>.*?</style>", "", page, flags=re.S)))
    if style == "markdown":
        page = html.unescape(re.sub(r"\\([\\`*_\[\]~$|])", r"\1", re.sub(r"</?(sup|br)>", " ", page)))
        page = page.replace("**", " ")
    if style == "latex":
        page = plain_latex(page)
    return " ".join(page.split())


def plain_latex(page):
    """Undo the escapes, independently of how they were made."""
    for command, letter in (
        (r"$\pm$", "±"), (r"$\bullet$", "•"), (r"$\circ$", "◦"), (r"$\uparrow$", "↑"), (r"$\downarrow$", "↓"),
        (r"$\alpha$", "α"), (r"$\chi$", "χ"), ("$^2$", "²"), ("---", "—"), ("--", "–"), (r"\textless{}", "<"),
        (r"\textgreater{}", ">"), (r"\textbar{}", "|"), (r"\textasciitilde{}", "~"),
        (r"\textasciicircum{}", "^"), (r"\textbackslash{}", "\0"),
    ):  # fmt: skip
        page = page.replace(command, letter)
    return re.sub(r"\\([&%$#_{}])", r"\1", page).replace("\0", "\\")


@pytest.mark.parametrize("style", STYLES)
def test_every_figure_and_reason_is_on_the_page(style):
    table = make_table()
    page = words(table, style)
    for cell in table.cells:
        d = cell.decimals
        if cell.mean is not None:
            assert f"{cell.mean:.{d}f}±{cell.std:.{d}f}" in page
        std = "" if cell.published_std is None else f"±{cell.published_std:.{d}f}"
        assert f"{cell.published_mean:.{d}f}{std}" in page
        assert cell.reason in page and cell.note in page
    for name in (*table.datasets, *table.methods, table.title, table.protocol, *table.remarks):
        assert name in page
    assert "Hamming loss, % ↓" in page and "AUC ↑" in page
    assert "inside" in page and "better" in page and "worse" in page
    assert "Friedman χ² =" in page and "Iman–Davenport" in page and "ritical difference" in page
    assert "1.50" in page and "0.250" in page and "124" in page, "times and memory"
    assert "•" in page and "◦" in page


@pytest.mark.parametrize("style", STYLES)
def test_odd_names_are_shown_as_they_are(style):
    page = words(make_table(datasets=ODD[:2], methods=ODD[2:]), style)
    for name in ODD:
        assert name in page


@pytest.mark.parametrize("style", STYLES)
def test_figures_have_points_and_remarks(style):
    page = words(FIGURE, style)
    for text in ("50.25±1.5", "60.5", "42.12", "51", "61", "M|R", "S<M", "(published)", "Read off the plot."):
        assert text in page
    empty = ResultFigure("p:fig9", "T", "x", "y", remarks=("Not public.",))
    assert "not run" in words(empty, style) and "Not public." in words(empty, style)


def test_a_table_without_anything_of_ours_says_why():
    cells = (
        Cell("S", "A", "auc", "higher", published_mean=0.5),
        Cell("S", "B", "auc", "higher", missing="slow"),
    )
    table = ResultTable("p:1", "T", "", "A", ("S", "U"), ("A", "B"), ("auc",), cells)
    for style in STYLES:
        page = words(table, style)
        for reason in ("not run", "slow", "no such experiment in the paper", "No comparison of our ranks"):
            assert reason in page


def test_wide_and_long_tables_fit_a_terminal():
    wide = make_table([f"data set {i}" for i in range(7)], [f"Method {j}" for j in range(8)], 5)
    long = make_table([f"some.newsgroup.{i}" for i in range(20)], ["GP-MIML (collective)", "miGraph"], 1)
    for table in (wide, long):
        for style in ("text", "rich"):
            words(table, style)
        lines = render(table, "text").splitlines()
        assert max(map(len, lines)) <= 100 and not any(line != line.rstrip() for line in lines)
    # two methods fit beside each other: one line per data set
    first = next(k for k, line in enumerate(lines) if line.startswith("some.newsgroup.0"))
    assert lines[first + 1].startswith("some.newsgroup.1")
    narrow = render(long, "text", width=60)
    grid = narrow[narrow.index("Hamming") : narrow.index("Time and memory")]
    assert max(map(len, grid.splitlines())) <= 60


# ---------------------------------------------------------------------- LaTeX


def latex_is_strict(page):
    """Only known commands; braces, dollars and environments balanced; rows of equal length."""
    body = "\n".join(line for line in page.splitlines() if not line.startswith("%"))
    assert not re.search(r"(?<!\\)(\\\\)*[#%]", body)
    commands = set(re.findall(r"\\([A-Za-z]+)", body))
    assert commands <= {
        "paragraph", "begin", "end", "centering", "footnotesize", "setlength", "tabcolsep", "caption", "par",
        "toprule", "midrule", "bottomrule", "addlinespace", "medskip", "raggedright", "textbf", "textit",
        "pm",
        "bullet", "circ", "uparrow", "downarrow", "alpha", "chi", "textless", "textgreater", "textbar",
        "textasciitilde", "textasciicircum", "textbackslash",
    }  # fmt: skip
    bare = re.sub(r"\\[\\&%$#_{}]", "", body)
    assert bare.count("$") % 2 == 0
    math = re.findall(r"\$([^$]*)\$", bare)
    assert all(re.fullmatch(r"\\[a-z]+|\^2|-", part) for part in math)
    rest = re.sub(r"\$[^$]*\$", "", bare)
    assert "_" not in rest and "^" not in rest and "|" not in rest and "<" not in rest
    depth = 0
    for letter in bare:
        depth += (letter == "{") - (letter == "}")
        assert depth >= 0
    assert depth == 0
    assert re.findall(r"\\begin\{(\w+)\}", body).count("tabular") == body.count("\\end{tabular}")
    assert body.count("\\begin{table}") == body.count("\\end{table}")
    assert not re.search(r"\\\\\s*[\[*]", body), "an argument of the line break"
    assert body.isascii() or all("\u00c0" <= c <= "\u017f" for c in body if not c.isascii())
    for spec, rows in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", body, re.S):
        for row in rows.split(r"\\")[:-1]:
            assert len(re.findall(r"(?<!\\)&", row)) == len(spec) - 1


@pytest.mark.parametrize(
    "names", [(("X", "Y"), ("A", "B")), (ODD[:2], ODD[2:]), (("[1]", "*"), ("[x]", "*y", "z"))]
)
def test_latex_is_strict(names):
    latex_is_strict(render(make_table(*names), "latex"))
    latex_is_strict(render(FIGURE, "latex"))
    latex_is_strict(render(make_table([f"s{i}" for i in range(3)], [f"m{i}" for i in range(9)]), "latex"))


def test_escapes():
    assert latex_escape("a_b") == r"a\_b" and latex_escape("λ é 中 “x”") == r"$\lambda$ é ? ``x''"
    assert latex_escape("\\{") == r"\textbackslash{}\{"
    assert escape("<script>") == "&lt;script&gt;" and escape("a\n# b") == "a # b"


# ---------------------------------------------------------------------- Markdown, CSV, HTML


def test_markdown_tables_are_rectangular():
    for names in ((ODD[:2], ODD[2:]), (ODD, (*ODD, "z")), (("a|b",), ("c|d", "e", "f"))):
        lines = render(make_table(*names), "markdown").splitlines()
        rows = [k for k, line in enumerate(lines) if line.startswith("|")]
        counts = [len(re.findall(r"(?<!\\)\|", lines[k])) for k in rows]
        for k, n, before in zip(rows[1:], counts[1:], rows):
            assert k != before + 1 or n == counts[rows.index(before)]


def test_csv_round_trips():
    table = make_table(datasets=ODD[:2], methods=(*ODD[2:], 'quote " , comma'))
    strings = pyarrow.csv.ConvertOptions(
        column_types={name: pyarrow.string() for name in ("note", "missing", "mark", "values", "keys")},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    page = render(table, "csv").encode()
    rows = pyarrow.csv.read_csv(io.BytesIO(page), convert_options=strings).to_pylist()
    assert len(rows) == len(table.cells)
    for row in rows:
        cell = table.cell(row["dataset"], row["method"], row["measure"])
        for name in (
            "direction",
            "mean",
            "std",
            "published_mean",
            "published_std",
            "note",
            "inside",
            "peak_mb",
        ):
            assert row[name] == getattr(cell, name)
        assert row["missing"] == cell.reason
        assert tuple(map(float, filter(None, row["values"].split(";")))) == cell.values
        assert tuple(filter(None, row["keys"].split(";"))) == cell.keys
    points = pyarrow.csv.read_csv(io.BytesIO(render(FIGURE, "csv").encode())).to_pylist()
    assert len(points) == 5 and points[0]["std"] == 1.5 and points[1]["std"] is None


class Strict(html.parser.HTMLParser):
    """Every element is closed in order, every id is used once, every address points into the page."""

    VOID = ("meta", "br", "link")

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.targets = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        self._look(tag, attributes)

    def handle_startendtag(self, tag, attributes):
        self._look(tag, attributes)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def _look(self, tag, attributes):
        assert tag not in ("script", "link", "img", "iframe", "object")
        for name, value in attributes:
            assert not name.startswith("on")
            if name == "id":
                self.ids.append(value)
            elif name.endswith("href"):
                assert value.startswith("#")
                self.targets.append(value[1:])
            elif not name.startswith("xmlns"):
                assert "http" not in (value or "")
            self.targets += re.findall(r"url\(#([^)]*)\)", value or "")


def test_page_is_well_formed_and_needs_nothing_from_outside(tmp_path):
    second = make_table(datasets=ODD, methods=(*ODD, "z"), seed=1)
    object.__setattr__(second, "id", "paper:4 <b>")
    files = write([make_table(), second, FIGURE], tmp_path, title="Ours & theirs")
    assert [file.name for file in files[:3]] == ["paper-3.md", "paper-3.tex", "paper-3.csv"]
    assert {file.name for file in tmp_path.iterdir()} == {file.name for file in files}
    assert (tmp_path / "paper-fig8.svg").read_text().startswith("<svg")
    assert "(paper-fig8.svg)" in (tmp_path / "paper-fig8.md").read_text()
    page = files[-1].read_text(encoding="utf-8")
    parser = Strict()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert len(set(parser.ids)) == len(parser.ids) and set(parser.targets) <= set(parser.ids)
    rest = re.sub(r'xmlns(:\w+)?="[^"]*"', "", page)
    assert "http" not in rest and "@import" not in rest and "prefers-color-scheme: dark" in rest
    assert page.count("<svg") == 1 + 2 * 4, "a figure, and ranks per measure, source and table"
    before = [file.read_bytes() for file in files]
    assert [
        file.read_bytes() for file in write([make_table(), second, FIGURE], tmp_path, title="Ours & theirs")
    ] == before


def test_two_results_of_one_name_are_refused(tmp_path):
    with pytest.raises(DataError, match="ids must differ"):
        write([make_table(), make_table()], tmp_path)
    with pytest.raises(DataError, match="style"):
        render(make_table(), "pdf")


# ---------------------------------------------------------------------- plots


def test_critical_difference_marks_what_differs():
    long = "A name that is rather long"
    ranks = {"A": 1.25, "B": 2.25, "C": 3.25, long: 3.25}
    figure = plots.critical_difference(ranks, 1.25, "A", "Title")
    colours = {text.get_text(): text.get_color() for text in figure.axes[0].texts}
    shown = {name: next(c for text, c in colours.items() if name in text.split("  ")) for name in ranks}
    assert len({shown["A"], shown["B"], shown["C"]}) == 3 and shown["C"] == shown[long]
    assert "CD = 1.25" in colours and "Title" in colours
    for drawn in (figure, plots.critical_difference({"A": 1.0, "B": 2.0}, 0.3, "B", "A long title, " * 8)):
        renderer = FigureCanvasAgg(drawn).get_renderer()
        for text in drawn.axes[0].texts:
            box = text.get_window_extent(renderer)
            assert box.x0 >= 0 and box.x1 <= drawn.bbox.width, "nothing is cut off"
    with pytest.raises(DataError, match="control"):
        plots.critical_difference(ranks, 1.0, "Z")
    with pytest.raises(DataError, match="two methods"):
        plots.critical_difference({"A": 1.0}, 1.0, "A")


@pytest.mark.parametrize("k", [3, 10, 11, 22, 60])
def test_numbers_of_many_ranks_stand_apart(k):
    figure = plots.critical_difference({f"method {i}": float(i) for i in range(1, k + 1)}, 1.0, "method 1")
    renderer = FigureCanvasAgg(figure).get_renderer()
    ticks = {int(t.get_text()): t for t in figure.axes[0].texts if t.get_text().isdigit()}
    boxes = [ticks[rank].get_window_extent(renderer) for rank in sorted(ticks)]
    assert 1 in ticks and len(ticks) >= min(k, 5)
    assert all(a.x1 + 2 < b.x0 for a, b in zip(boxes, boxes[1:]))


def test_svg_is_deterministic():
    def draw():
        return plots.svg(plots.curves(FIGURE)), plots.svg(plots.critical_difference({"A": 1, "B": 2}, 1, "A"))

    assert draw() == draw()
    for text in draw():
        assert "<metadata" not in text and "<!DOCTYPE" not in text


def test_curves_of_one_name_share_a_colour():
    axes = plots.curves(FIGURE).axes[0]
    ours, _, published = (container[0] for container in axes.containers)
    assert ours.get_color() == published.get_color()
    assert ours.get_linestyle() == "-" and published.get_linestyle() == "--"
    assert axes.get_xscale() == "log" and axes.get_yscale() == "linear"


# ---------------------------------------------------------------------- what the page for browsers adds


def test_footnotes_stand_once_on_the_page(tmp_path):
    second = make_table(seed=1)
    object.__setattr__(second, "id", "paper:4")
    page = write([make_table(), second], tmp_path)[-1].read_text()
    shown = re.sub(r'title="[^"]*"', "", page)
    assert shown.count(html.escape(NOTE)) == 1
    numbers = re.findall(r'href="#note-(\d+)"', page)
    assert len(numbers) > len(set(numbers)) and set(numbers) == set(re.findall(r'id="note-(\d+)"', page))


def test_the_best_of_each_row_is_marked():
    cells = []
    for method, mean in (("A", 0.512), ("B", 0.4), ("C", 0.5121)):
        cells.append(Cell("S", method, "auc", "higher", mean, published_mean=0.5, published_std=0.01))
    cells.append(Cell("S", "D", "auc", "higher", 0.9, count=(1, 10), missing="1 of 10 fits"))
    table = ResultTable("p:1", "T", "", "A", ("S",), tuple("ABCD"), ("auc",), tuple(cells))
    page = render(table, "html")
    best = re.findall(r'<td class="best">.*?([\d.]+)</span>', page)
    assert best == ["0.51", "0.51"], "as shown, two are equal; what is unfinished does not count"
    assert "★ the best of ours" in page


def test_names_command_and_versions_are_explained(tmp_path):
    table = make_table()
    object.__setattr__(table, "glossary", (("MLR", "our ORedLogisticRegression: softmax <per> instance"),))
    origin = ["3 fits.", "3 fits with numpy 9.9."]
    page = write([table], tmp_path, command="python -m papers paper:3", origin=origin)[-1].read_text()
    assert "<code>python -m papers paper:3</code>" in page and "numpy 9.9" in page
    assert "<dt>MLR</dt><dd>our ORedLogisticRegression: softmax &lt;per&gt; instance</dd>" in page
    assert "<dt>AUC ↑</dt>" in page and "<dt>std</dt>" in page and '<abbr title="our ORed' in page
