"""The rules of the house, read off the source: rooms and furniture, limits, one way for each thing, doors."""

import ast
import importlib
import re
import sys
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import pytest

import bagwise
from bagwise import all_estimators, models
from bagwise.base import MIMLClassifier
from bagwise.compute import compiled

ROOT = Path(bagwise.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
CHECKOUT = ROOT.parent
TESTS = sorted(path for path in (CHECKOUT / "tests").rglob("*.py"))
PAPERS = sorted((CHECKOUT / "papers").rglob("*.py"))
MOST_LINES = 450

# what every fit needs; other libraries are imported where they are used
ALWAYS = {"numpy", "scipy", "sklearn", "numba", "joblib", "threadpoolctl", "skops", *sys.stdlib_module_names}
ALWAYS -= {"fcntl", "msvcrt"}  # not on every system
# tools, and the contract for authors of methods: every module without an underscore is a door
TOOLS = {"bags", "base", "compute", "utils"}
ESTIMATORS = [cls for _, cls in all_estimators()]

# written once, in the base; a method with arguments of its own calls the base's
PUBLIC = {"fit", "decision_function", "predict", "predict_proba", "instance_scores", "scores_and_labels"}


@cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path):
    return str(path.relative_to(CHECKOUT))


def module_of(path):
    return ".".join(path.relative_to(CHECKOUT).with_suffix("").parts).removesuffix(".__init__")


def imported(node):
    """What an import statement may mean: modules, and names in modules."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def statements(body):
    """Statements that run when a module is imported, those for type checkers apart."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            inner = [*node.body, *getattr(node, "orelse", []), *getattr(node, "finalbody", [])]
            yield from statements(inner)


@cache
def needs_optional():
    """Modules of ours that cannot be imported where an optional library is missing."""
    tops = {
        module_of(path): {what for node in statements(tree_of(path).body) for what in imported(node)}
        for path in FILES
    }
    known = ALWAYS | {"bagwise"}
    found = {module for module, names in tops.items() if {w.partition(".")[0] for w in names} - known}
    while more := {
        module
        for module, names in tops.items()
        if module not in found and any(w in found or w.rpartition(".")[0] in found for w in names)
    }:
        found |= more
    return found


def trees():
    return {path: tree_of(path) for path in FILES}


def names(path):
    return str(path.relative_to(ROOT))


def compiled_functions():
    for path in FILES:
        if not re.search(r"^@(kernel|part|njit)\b", path.read_text(), re.MULTILINE):
            continue
        for node in tree_of(path).body:
            decorators = {ast.unparse(d).split("(")[0] for d in getattr(node, "decorator_list", [])}
            if decorators & {"kernel", "part", "njit"}:
                yield pytest.param(node, id=f"{names(path)}:{node.name}")


def depth(node, level=0):
    """Levels of blocks inside a function."""
    deepest = level
    for child in ast.iter_child_nodes(node):
        block = isinstance(child, (ast.For, ast.While, ast.If, ast.With, ast.Try))
        chained = block and isinstance(node, ast.If) and node.orelse == [child]  # elif is no deeper than if
        deepest = max(deepest, depth(child, level + (block and not chained)))
    return deepest


@pytest.mark.parametrize("node", list(compiled_functions()))
def test_compiled_loops_can_be_read(node):
    arguments = node.args.args + node.args.kwonlyargs
    assert len(arguments) <= 12, "more than 12 arguments: hand them over in a NamedTuple"
    assert depth(node) <= 5, "more than 5 levels of blocks"
    assert node.end_lineno - node.lineno < 60, "more than 60 lines"


def test_one_place_compiles():
    # so that caches know the files of all parts, and parts have no entry for Python
    users = {names(path) for path in FILES if "import njit" in path.read_text()}
    assert users == {"compute/compiled.py"}, "use kernel and part of bagwise.compute.compiled"


def python_functions(module):
    for value in vars(module).values():
        if getattr(value, "__module__", "") == module.__name__ and value not in compiled._PARTS:
            for function in vars(value).values() if isinstance(value, type) else [value]:
                if isinstance(function, FunctionType):
                    yield function


def may_call_kernels(path):
    text = path.read_text()
    # torch may not be here, and has loops of its own
    return "kernel" in text and not re.search(r"^(import|from) (torch|triton)\b", text, re.MULTILINE)


@pytest.mark.parametrize("path", [path for path in FILES if may_call_kernels(path)])
def test_python_calls_no_part(path):
    # it would run without being compiled, some hundred times slower
    module = importlib.import_module(".".join(path.relative_to(ROOT.parent).with_suffix("").parts))
    for function in python_functions(module):
        codes = [function.__code__]
        for code in codes:
            codes += [c for c in code.co_consts if isinstance(c, CodeType)]
            known = [vars(module).get(name) for name in code.co_names]
            inside = [
                vars(m) for m in known if isinstance(m, ModuleType) and m.__name__.startswith("bagwise")
            ]
            known += [there.get(name) for name in code.co_names for there in inside]
            assert not [f for f in known if isinstance(f, FunctionType) and f in compiled._PARTS], function


def test_compiled_loops_are_not_parallel_by_themselves():
    # their threads do not survive a fork, and they take longer to compile; see bagwise.compute.threads
    found = [
        names(path) for path in FILES if "prange" in path.read_text() or "parallel=True" in path.read_text()
    ]
    assert not [name for name in found if not name.startswith("compute")]


@pytest.mark.parametrize("word", ["joblib", "concurrent.futures", "threadpoolctl", "dask", "distributed"])
def test_one_room_knows_threads_and_clusters(word):
    users = {
        names(path)
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.ImportFrom) and (node.module or "").startswith(word))
        or (isinstance(node, ast.Import) and any(alias.name.startswith(word) for alias in node.names))
    }
    # reading row groups ahead is no computation and needs no setting
    assert not [name for name in users if not name.startswith(("compute/", "io/_parquet_pages"))]


def test_one_place_warns():
    # it names the first line outside bagwise; frames counted by hand point elsewhere after the next change
    users = {
        names(path)
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (
            ast.unparse(node.func) == "warnings.warn"
            or any(keyword.arg == "stacklevel" for keyword in node.keywords)
        )
    }
    assert users == {"errors.py"}, "use bagwise.errors.warn"


@pytest.mark.parametrize("cls", ESTIMATORS, ids=lambda cls: cls.__name__)
def test_no_side_doors(cls):
    for owner in cls.__mro__:
        if owner.__module__.startswith("bagwise.models"):
            own = {
                name
                for name in PUBLIC & set(vars(owner))
                if vars(owner)[name] is not getattr(MIMLClassifier, name)
            }
            own = {n for n in own if not getattr(vars(owner)[n], "__module__", "").startswith("bagwise.base")}
            assert not own, f"{owner.__name__} writes {own} itself; use the hooks of the base"


@pytest.mark.parametrize("cls", ESTIMATORS, ids=lambda cls: cls.__name__)
def test_every_parameter_has_a_rule(cls):
    assert set(cls._parameters) == set(cls().get_params(deep=False))


def test_every_classifier_is_in_the_catalogue():
    written = {
        node.name
        for path, tree in trees().items()
        if "models" in path.parts
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    listed = set(bagwise.models.__all__)
    classifiers = {
        sub.__name__ for sub in _subclasses(MIMLClassifier) if sub.__module__.startswith("bagwise.models")
    }
    bases = {sub.__name__ for sub in _subclasses(MIMLClassifier) if sub.__subclasses__()}
    assert (classifiers & written) - bases <= listed


def _subclasses(cls):
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)


# ---------------------------------------------------------------------- furniture and sizes


FURNITURE = re.compile(
    r"(__init__|estimator|estimator_\w+|fit|fit_\w+|predict|kernels|kernels_\w+|gpu|gpu_triton|tune)\.py"
)
# what a network is belongs to no other piece: it is neither a step of learning nor a compiled loop
ALSO = {"deep": {"network.py"}}
OF_FAMILIES = re.compile(r"(__init__|base|kernels|kernels_\w+|gpu|gpu_triton)\.py")
ROOMS = sorted(
    path.parent for path in (ROOT / "models").glob("*/__init__.py") if path.parent.name != "_shared"
)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_every_room_has_the_same_furniture(room):
    files = {str(path.relative_to(room)) for path in room.rglob("*.py")}
    if "estimator.py" in files:
        strange = {file for file in files if not FURNITURE.fullmatch(file)} - ALSO.get(room.name, set())
    else:  # a family: one file per method
        methods = {place.rpartition(".")[2] for place in models._PLACES.values() if f".{room.name}." in place}
        strange = {file for file in files if not OF_FAMILIES.fullmatch(file)} - {f"{m}.py" for m in methods}
    assert not strange, "see the house in CONTRIBUTING.md"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_is_one_idea(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


# ---------------------------------------------------------------------- one way for each thing


def inside_functions(path):
    return {
        what
        for function in ast.walk(tree_of(path))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
        for what in imported(node)
    }


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_of_ours_stand_on_top(path):
    # but of what cannot be imported without an optional library; containers do without joblib until arrays
    # are so large that threads pay
    late = {"bagwise/bags/_rows.py": {"bagwise.compute.threads.cores", "bagwise.compute.threads.in_threads"}}
    ours = {what for what in inside_functions(path) if what.partition(".")[0] == "bagwise"}
    ours -= late.get(name_of(path), set())
    assert not {w for w in ours if not {w, w.rpartition(".")[0]} & needs_optional()}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_of_what_is_always_there_stand_on_top(path):
    assert not {what for what in inside_functions(path) if what.partition(".")[0] in ALWAYS}


def test_blocks_say_what_they_are():
    asked = re.compile(r"hasattr\([^()]*, \"(store|shards|block|gpu|tensor)\"\)")
    assert not [name_of(path) for path in FILES if asked.search(path.read_text(encoding="utf-8"))]


def test_one_place_calibrates():
    # sigmoids per label; a measure of calibration is none
    wrong = {
        f"{name_of(path)}: {node.name}"
        for path in FILES
        if name_of(path) != "bagwise/compute/calibration.py" and "metrics" not in path.parts
        for node in ast.walk(tree_of(path))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        and re.search(
            r"(^|_)(calibrator|calibration|platt|sigmoids?)(_|$)|^_?(fit_)?calibrate$", _snake(node.name)
        )
    }
    assert not wrong
    users = {name_of(path) for path in FILES if "CalibratedClassifierCV" in path.read_text(encoding="utf-8")}
    assert not users


def _snake(name):
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def test_a_gpu_is_called_by_its_name():
    # names, comments, messages; "cardinality" and "discard" are other words
    word = re.compile("(?<![A-Za-z])[Cc]" + "ards?(?![a-z])|C" + "ARD")
    found = [
        f"{name_of(path)}:{k}"
        for path in (*FILES, *TESTS)
        for k, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if word.search(line) or word.search(path.name)
    ]
    assert not found


# ---------------------------------------------------------------------- doors


@cache
def offered(package):
    """What a package lists in ``__all__``."""
    for node in tree_of(package / "__init__.py").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def is_public(what):
    """Whether something of bagwise is reached by a front door.

    Doors are modules of the package itself, packages in it, packages further in that list what they offer,
    and the modules of the rooms of tools. Nothing with an underscore is public.
    """
    place, parts = ROOT, what.split(".")[1:]
    if any(part.startswith("_") and not part.startswith("__") for part in parts):
        return False
    for level, part in enumerate(parts):
        if level and part in offered(place):
            return True  # before a module of the same name
        place = place / part
        if place.with_suffix(".py").exists():
            return level == 0 or parts[0] in TOOLS
        if not place.is_dir():
            break  # a name
        if level and not offered(place):
            return False
    return True


@pytest.mark.parametrize("path", PAPERS, ids=name_of)
def test_papers_use_public_names(path):
    used = {what for node in ast.walk(tree_of(path)) for what in imported(node)}
    private = {what for what in used if what.partition(".")[0] == "bagwise" and not is_public(what)}
    assert not private


def test_papers_stand_beside_the_library():
    assert PAPERS and not (ROOT / "bench").exists() and not (ROOT / "report" / "pages").exists()
    for path in FILES:
        used = {what.partition(".")[0] for node in ast.walk(tree_of(path)) for what in imported(node)}
        assert "papers" not in used, name_of(path)


def rooms_of(test):
    """Rooms whose inside a test may look at: that of its folder, for a method also what methods share."""
    folders = test.relative_to(CHECKOUT / "tests").parts[:-1]
    if folders[:1] == ("models",):
        return {f"bagwise.models.{folders[1]}.", "bagwise.models._shared."}
    return {f"bagwise.{folders[0]}."} if folders else set()


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_tests_go_through_front_doors(path):
    """A room's own tests may look inside; all others use public names.

    ``tests/media/...`` are the own tests of ``bagwise.media``, ``tests/models/ored/...`` those of
    ``bagwise.models.ored``; tests of the whole house, and helpers that build data for several rooms, lie in
    ``tests/`` itself and have no room of their own. Where a public name is missing, the room gets it.

    Imports are what is looked at. A limit that a test makes small, so that small data pass it, is named by
    its place in ``monkeypatch.setattr("bagwise...", ...)``.
    """
    used = {what for node in ast.walk(tree_of(path)) for what in imported(node)}
    foreign = {what for what in used if what.partition(".")[0] == "bagwise" and not is_public(what)}
    own = rooms_of(path)
    assert not {what for what in foreign if not any(f"{what}.".startswith(room) for room in own)}
