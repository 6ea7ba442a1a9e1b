"""How the house is built, of one or several checkouts side by side: one column each, and the goal.

python benchmarks/house.py [CHECKOUT ...] [--only lines walks imports once clones inner tests]

Any layout can be measured: walks use public names, the rest reads the sources that git tracks. Counted are:

lines
    All lines and files of ``bagwise/**/*.py``; of code (neither blank, comment nor docstring); comments on
    lines of their own as a share of the lines of code; files of more than 450 lines.
walks
    What runs between a public call and its answer, by ``sys.setprofile`` in the main thread: functions, files
    and changes of room, written ``112/26/47``. A function is a name in a file, entered at least once;
    lambdas, comprehensions and module bodies do not count. Rooms are the folders of ``bagwise/`` and of
    ``models/``; changes of room are counted along the functions in the order of their first entry. Every walk
    is a process of its own, and the second walk there, ``read`` alone the first, since a file is read once;
    the command line is called in process, each time with another file.
imports
    Modules of ours in ``sys.modules`` after a statement, and the seconds it takes: medians of fresh
    processes, taken in turn, beside ``import sklearn.svm``; a bare interpreter is subtracted. Last, whether a
    fit goes through where no library of the command line, the page and the plots can be imported.
once
    Functions and methods, special ones apart, whose body without docstring has at most five lines and whose
    name is used once. Uses of a function are names that its imports lead to it; uses of a method are
    attributes of its name, of a private one those in its own file.
clones
    Pairs of places that share six lines or more, found here: two files (or two places of one) are a pair if
    six consecutive lines are equal to the letter, docstrings included, or, outside docstrings, of equal shape
    once names, numbers and strings are struck out. Blank lines, comments, imports and lone punctuation are
    passed over; so are runs that stand in more than eight places, and shapes of which fewer than two lines
    have four tokens or more. In brackets the pairs that are equal to the letter.
inner
    Imports of our own modules, not of optional libraries, inside functions; and the functions with such.
tests
    Modules of the third level or deeper, packages apart, that tests import by path; in brackets those that
    are imported by tests of another room than the module's own.
"""

import argparse
import ast
import functools
import itertools
import json
import keyword
import re
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LIBRARIES = ("typer", "rich", "jinja2", "matplotlib", "pooch")
LONGEST_FILE, SHORT_BODY, RUN, MOST_PLACES, RICH_LINES, RICH_TOKENS = 450, 5, 6, 8, 2, 4

ORED, UNION = "'ORedLogisticRegression'", "decision='union'"
WALKS = {  # what is walked, where it starts, the goal
    "ORed, alpha=1, no background, union": (f"fit({ORED}, alpha=1.0, background=False, {UNION})", "60/13/22"),
    "ORed at its defaults": (f"fit({ORED})", "90/17/35"),
    "MIMLFast": ("fit('MIMLFast')", "60/14/22"),
    "BagClassifier": ("fit('BagClassifier')", "140/28/45"),
    "bagwise fit FILE": ("command('fit', '--out', 'model.skops')", "200/50/65"),
    "bagwise predict": ("command('predict', '--out', 'answers.csv', 'model.skops')", "130/40/45"),
    "CSV to Dataset": ("lambda path: bagwise.read(path)", "55/10/12"),
}
GOALS = {name: goal for name, (_, goal) in WALKS.items()} | {
    "checkout": "goal",
    "lines, all told": "60000",
    "files": "340",
    "files over 450 lines": "0",
    "from bagwise.models import MIMLKNN: modules": "80",
    "from bagwise.models import MIMLKNN: s": "half",
    "a fit needs": "none",
    "functions used once, of at most 5 lines": "250",
    "pairs of places sharing 6 lines": "90",
    "functions with imports of ours": "0",
}

WALK = """
import contextlib, io, json, os, sys, tempfile, warnings
warnings.simplefilter("ignore")
import numpy as np
import bagwise
assert os.path.dirname(os.path.dirname(bagwise.__file__)) == os.getcwd(), bagwise.__file__
os.chdir(tempfile.mkdtemp())
rng = np.random.default_rng(0)
directions = rng.normal(size=(3, 3))
for name in ("bags.csv", "others.csv"):
    with open(name, "w") as file:
        print("bag,f1,f2,f3,labels", file=file)
        for bag in range(60):
            rows = 2 * rng.normal(size=(rng.integers(2, 6), 3))
            labels = ";".join(sorted({"abc"[label] for label in (rows @ directions).argmax(1)}))
            for row in rows:
                print(f"b{bag}", *row, labels, sep=",", file=file)
def fit(name, **given):
    estimator, data = getattr(bagwise.models, name), bagwise.read("bags.csv")
    bags, Y = data.bags, data.Y
    return lambda path: estimator(**given).fit(bags, Y)
def command(verb, *words):
    from bagwise.cli import main
    if verb == "predict":
        command("fit", "--out", "model.skops")("others.csv")
    def walk(path):
        sys.argv = ["bagwise", verb, *words, path]
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                main()
        except SystemExit as end:
            assert not end.code, sys.argv
    return walk
start = sys.argv[1]
walk = eval(start)
if "read" not in start:
    walk("others.csv")
root, entered = os.path.dirname(bagwise.__file__) + "/", {}
def note(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(root) and code.co_name[0] != "<":
        entered.setdefault((code.co_filename[len(root):], code.co_name))
sys.setprofile(note)
walk("bags.csv")
sys.setprofile(None)
print(json.dumps(list(entered)))
"""


@functools.cache
def sources(checkout, folder="bagwise"):
    """Text and syntax tree of each file that git tracks in a folder, by path."""
    command = ["git", "ls-files", f"{folder}/*.py"]
    listed = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True).stdout
    texts = {name: (checkout / name).read_text() for name in listed.split()}
    return {name: (text, ast.parse(text)) for name, text in texts.items()}


def module_name(path):
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def docstring_lines(tree):
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) and ast.get_docstring(node) is not None:
            found.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return found


def run(checkout, *arguments):
    command = [sys.executable, "-c", *arguments]
    found = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    if found.returncode:
        raise RuntimeError(f"{arguments[1:]} in {checkout}:\n{found.stderr[-2000:]}")
    return found.stdout


def lines(checkout):
    lengths, code, comments = [], 0, 0
    for text, tree in sources(checkout).values():
        documented = docstring_lines(tree)
        rows = [row.strip() for row in text.splitlines()]
        lengths.append(len(rows))
        comments += sum(row.startswith("#") for n, row in enumerate(rows, 1) if n not in documented)
        code += sum(row[:1] not in ("", "#") for n, row in enumerate(rows, 1) if n not in documented)
    return {
        "lines, all told": sum(lengths),
        "files": len(lengths),
        "lines of code": code,
        "comments, % of code": f"{100 * comments / code:.1f}",
        "files over 450 lines": sum(length > LONGEST_FILE for length in lengths),
    }


def room(path):
    """Folder of the package, or of ``models``."""
    folders = path.split("/")[:-1]
    return "/".join(folders[: 2 if folders[:1] == ["models"] else 1])


def walks(checkout):
    with ThreadPoolExecutor(2) as pool:
        printed = pool.map(lambda walk: run(checkout, WALK, walk[0]), WALKS.values())
        walked = [json.loads(text.splitlines()[-1]) for text in printed]
    found = {}
    for name, entered in zip(WALKS, walked):
        changes = sum(room(a) != room(b) for (a, _), (b, _) in zip(entered, entered[1:]))
        found[name] = f"{len(entered)}/{len({path for path, _ in entered})}/{changes}"
    return found


def imports(checkout, repeats=5):
    statements = ["pass", "import sklearn.svm", "import bagwise", "from bagwise.models import MIMLKNN"]
    times = defaultdict(list)
    for _ in range(repeats + 1):  # the first round fills caches
        for statement in statements:
            start = time.perf_counter()
            run(checkout, statement)
            times[statement].append(time.perf_counter() - start)
    seconds = {name: statistics.median(taken[1:]) for name, taken in times.items()}
    found = {}
    for statement in statements[1:]:
        if "bagwise" in statement:
            count = "import sys; print(sum(name.split('.')[0] == 'bagwise' for name in sys.modules))"
            found[f"{statement}: modules"] = int(run(checkout, f"{statement}; {count}"))
        found[f"{statement}: s"] = f"{seconds[statement] - seconds['pass']:.2f}"
    barred = f"import sys; sys.modules.update(dict.fromkeys({LIBRARIES}))\n"
    try:
        run(checkout, barred + WALK, f"fit({ORED})")
    except RuntimeError as error:
        return found | {"a fit needs": str(error).splitlines()[-1]}
    return found | {"a fit needs": "none"}


def is_short(function):
    body = function.body[ast.get_docstring(function) is not None :]
    return not body or body[-1].end_lineno - body[0].lineno < SHORT_BODY


def once(checkout):
    trees = {module_name(path): tree for path, (_, tree) in sources(checkout).items()}
    came_from = defaultdict(dict)
    for module, tree in trees.items():
        for node in (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)):
            came_from[module] |= {name.asname or name.name: (node.module, name.name) for name in node.names}

    def home(module, name):
        for _ in range(9):  # through the front doors that hand a name on
            module, name = came_from[module].get(name, (module, name))
        return module, name

    names, attributes, attributes_here = Counter(), Counter(), Counter()
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                names[home(module, node.id)] += 1
            elif isinstance(node, ast.Attribute):
                attributes[node.attr] += 1
                attributes_here[module, node.attr] += 1
    found = 0
    for module, tree in trees.items():
        for owner in ast.walk(tree):
            for node in owner.body if isinstance(owner, (ast.Module, ast.ClassDef)) else ():
                if not isinstance(node, FUNCTIONS) or node.name.startswith("__") or not is_short(node):
                    continue
                private = node.name.startswith("_")
                method_uses = attributes_here[module, node.name] if private else attributes[node.name]
                found += (names[module, node.name] if isinstance(owner, ast.Module) else method_uses) == 1
    return {"functions used once, of at most 5 lines": found}


def shape(line):
    """A line with its names, numbers and strings struck out."""

    def struck(token):
        if token.isidentifier():
            return token if keyword.iskeyword(token) else "name"
        return "0" if token[0].isdigit() else "text" if token[0] in "\"'" else token

    tokens = re.findall(r"[^\W\d]\w*|\d[\w.]*|\"[^\"]*\"|'[^']*'|\S", line)
    return " ".join(map(struck, tokens))


def shared_runs(texts, few_tokens):
    """Pairs of files in which a run of lines stands, of ``texts``: the lines of each file."""
    places = defaultdict(list)
    for path, rows in texts.items():
        for start in range(len(rows) - RUN + 1):
            window = tuple(rows[start : start + RUN])
            if few_tokens or sum(len(row.split()) >= RICH_TOKENS for row in window) >= RICH_LINES:
                places[window].append((path, start))
    return {
        (first, second)
        for stands in places.values()
        if len(stands) <= MOST_PLACES
        for (first, start), (second, other) in itertools.combinations(stands, 2)
        if first != second or other - start >= RUN
    }


def clones(checkout):
    letters, shapes = {}, {}
    for path, (text, tree) in sources(checkout).items():
        documented, passed = docstring_lines(tree), set()
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                passed.update(range(node.lineno, node.end_lineno + 1))
        rows = [(n, " ".join(row.split())) for n, row in enumerate(text.splitlines(), 1) if n not in passed]
        rows = [(n, row) for n, row in rows if not row.startswith("#") and re.search(r"\w", row)]
        letters[path] = [row for _, row in rows]
        shapes[path] = [shape(row) for n, row in rows if n not in documented]
    same, alike = shared_runs(letters, few_tokens=True), shared_runs(shapes, few_tokens=False)
    return {"pairs of places sharing 6 lines": f"{len(same | alike)} ({len(same)})"}


def imported(node):
    """Modules that an import statement may name."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return set()


def inner(checkout):
    lines, holders = set(), set()
    for path, (_, tree) in sources(checkout).items():
        for function in (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)):
            for node in ast.walk(function):
                if any(name.split(".")[0] == "bagwise" for name in imported(node)):
                    lines.add((path, node.lineno))
                    holders.add((path, function.name))
    return {"imports of ours inside functions": len(lines), "functions with imports of ours": len(holders)}


def tests(checkout):
    modules = {
        module_name(path): room(path.partition("/")[2])
        for path in sources(checkout)
        if path.count("/") >= 2 and not path.endswith("__init__.py")
    }
    by_path, from_outside = set(), set()
    for path, (_, tree) in sources(checkout, "tests").items():
        for node in ast.walk(tree):
            for name in imported(node) & modules.keys():
                by_path.add(name)
                if room(path.partition("/")[2]) != modules[name]:
                    from_outside.add(name)
    return {"modules that tests import by path": f"{len(by_path)} ({len(from_outside)})"}


PARTS = {part.__name__: part for part in (lines, walks, imports, once, clones, inner, tests)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, default=[Path()], metavar="CHECKOUT")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], metavar="PART")
    options = parser.parse_args()
    columns = [{"checkout": path.resolve().name} for path in options.checkouts]
    for part, (path, column) in itertools.product(options.only, zip(options.checkouts, columns)):
        column |= PARTS[part](path.resolve())
    widths = [max(len(str(value)) for value in column.values()) for column in columns]
    width = max(map(len, columns[0]))
    for name in columns[0]:
        row = (f"{column[name]!s:>{wide}}" for column, wide in zip(columns, widths))
        print(f"{name:<{width}} ", "  ".join(row), f" {GOALS.get(name, ''):>9}")


if __name__ == "__main__":
    main()
