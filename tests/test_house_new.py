"""Rules of the third house that read the tree: furniture, sizes, doors and words."""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

import bagwise
from bagwise import models

ROOT = Path(bagwise.__file__).parent
CHECKOUT = ROOT.parent
FILES = sorted(ROOT.rglob("*.py"))
TESTS = sorted(path for path in (CHECKOUT / "tests").rglob("*.py"))
PAPERS = sorted((CHECKOUT / "papers").rglob("*.py"))
MOST_LINES = 450

# what every fit needs; other libraries are imported where they are used
ALWAYS = {"numpy", "scipy", "sklearn", "numba", "joblib", "threadpoolctl", "skops", *sys.stdlib_module_names}
ALWAYS -= {"fcntl", "msvcrt"}  # not on every system
# tools, and the contract for authors of methods: every module without an underscore is a door
TOOLS = {"bags", "base", "compute", "utils"}


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
    found = {module for module, whats in tops.items() if {w.partition(".")[0] for w in whats} - known}
    while more := {
        module
        for module, whats in tops.items()
        if module not in found and any(w in found or w.rpartition(".")[0] in found for w in whats)
    }:
        found |= more
    return found


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
    assert not strange, "see 'Where things are' in CONTRIBUTING.md"


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
    # but of what cannot be imported without an optional library
    ours = {what for what in inside_functions(path) if what.partition(".")[0] == "bagwise"}
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
