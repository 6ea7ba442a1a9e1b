"""What estimators and formats there are and what they can do, read from their source without importing any.

Importing them brings scikit-learn, numba and pyarrow, some seconds on a slow machine, only to print a list.
The first line of a docstring and the ``traits`` of a class are literals, so their file tells them;
`bagwise.registry` gives the classes themselves.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_CATALOGUE, _CONTRACT, _TRAITS = "bagwise.models", "bagwise.base._input", "Traits"


def described_estimators() -> list[dict[str, Any]]:
    """Name, summary and traits of every class of `bagwise.models`, by name.

    Traits are None where a class has those of an estimator inside it.

    Examples
    --------
    >>> rows = {row["name"]: row for row in described_estimators()}
    >>> rows["MIMLDummy"]["summary"], rows["MIMLMix"]["traits"]["views"]
    ('Answer every bag with how often labels occur in training', True)
    """
    rows = []
    for name, module in _constant(_CATALOGUE, "_PLACES").items():
        node = _classes(module).get(name)
        if node is not None:
            summary = (ast.get_docstring(node) or "").partition("\n")[0].rstrip(".")
            traits = _traits(module, name)
            if traits is not None:
                traits = _defaults() | traits
            rows.append({"name": name, "summary": summary, "traits": traits})
    return sorted(rows, key=lambda row: row["name"])


def described_module(module: str, *constants: str) -> dict[str, Any]:
    """First line of a module's docstring, these of its constants, and the names that it defines or imports.

    Examples
    --------
    >>> npz = described_module("bagwise.io.npz", "SUFFIXES")
    >>> npz["SUFFIXES"], "write" in npz["names"]
    (('.npz',), True)
    """
    tree = _tree(module)
    found: dict[str, Any] = {"summary": (ast.get_docstring(tree) or "").partition("\n")[0]}
    found["names"] = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} | {
        *_imported(module)
    }
    return found | {name: _constant(module, name) for name in constants}


def _constant(module: str, name: str) -> Any:
    """A constant that a module writes as a literal; None where it has none of this name."""
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return ast.literal_eval(node.value)
    return None


def _traits(module: str, name: str) -> dict[str, Any] | None:
    """Traits that the class names, or else the first of its bases that does; None if they are no literals."""
    node = _classes(module).get(name)
    if node is None:  # defined elsewhere
        elsewhere = _imported(module).get(name, "")
        return _traits(elsewhere, name) if elsewhere.startswith("bagwise.") else {}
    for line in node.body:
        if isinstance(line, ast.Assign) and getattr(line.targets[0], "id", "") == "traits":
            if not isinstance(line.value, ast.Call) or getattr(line.value.func, "id", "") != _TRAITS:
                return None
            return {str(word.arg): ast.literal_eval(word.value) for word in line.value.keywords}
    for base in node.bases:
        found = _traits(module, getattr(base, "id", ""))
        if found != {}:
            return found
    return {}


@cache
def _defaults() -> dict[str, Any]:
    fields = [line for line in _classes(_CONTRACT)[_TRAITS].body if isinstance(line, ast.AnnAssign)]
    return {line.target.id: ast.literal_eval(line.value) for line in fields if line.value}  # type: ignore[union-attr]


@cache
def _tree(module: str) -> ast.Module:
    place = _ROOT.joinpath(*module.split(".")[1:])
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def _classes(module: str) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in _tree(module).body if isinstance(node, ast.ClassDef)}


def _imported(module: str) -> dict[str, str]:
    """Names that a module imports, with the module that they come from."""
    return {
        alias.asname or alias.name: node.module
        for node in _tree(module).body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
