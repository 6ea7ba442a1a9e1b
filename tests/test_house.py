"""The rules of the house, read off the source: rooms, limits of compiled loops, one way for each thing."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import pytest

import bagwise
from bagwise import all_estimators
from bagwise.base import MIMLClassifier
from bagwise.compute import compiled

ROOT = Path(bagwise.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
ESTIMATORS = [cls for _, cls in all_estimators()]

# written once, in the base; a method with arguments of its own calls the base's
PUBLIC = {"fit", "decision_function", "predict", "predict_proba", "instance_scores", "scores_and_labels"}


@cache
def tree_of(path):
    return ast.parse(path.read_text())


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
    assert not [name for name in users if not name.startswith(("compute/", "io/_parquet_groups"))]


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
