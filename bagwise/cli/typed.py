"""What a user typed, as values; messages in the words of the command line; names that a shell completes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import bagwise
from bagwise.errors import BagwiseError
from bagwise.utils.catalogue import described_estimators

_WORDS = {"True": True, "False": False, "None": None, "inf": float("inf"), "-inf": float("-inf")}
_FLAGS = ("use_labels",)
_OWN = ("part", "view", "format", "medium")  # options of the command line itself, not of the reader


def assignments(given: list[str] | None, what: str) -> dict[str, Any]:
    """Read ``name=value`` pairs.

    Examples
    --------
    >>> assignments(["alpha=0.5", "kernel=rbf", "warm=true", "C=None", "labels=[wren, gull]"], "--param")
    {'alpha': 0.5, 'kernel': 'rbf', 'warm': True, 'C': None, 'labels': ['wren', 'gull']}
    """
    found: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise BagwiseError(f"{what} takes name=value, such as alpha=0.5; got {text!r}")
        if name in found:
            raise BagwiseError(f"{what} {name} is given twice")
        found[name] = literal(value.strip())
    return found


def literal(text: str) -> Any:
    """A value as JSON or as Python writes it; a list needs no quotes inside; anything else is text.

    Examples
    --------
    >>> literal("[A, 'B, C', 3]"), literal("0.5"), literal("wren")
    (['A', 'B, C', 3], 0.5, 'wren')
    """
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    if len(text) > 1 and text[0] == "[" and text[-1] == "]":
        return [literal(part.strip()) for part in _parts(text[1:-1]) if part.strip()]
    return text


def _parts(text: str) -> list[str]:
    """Text cut at commas that are in no quotes and no inner list."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and not parts[-1].strip():
            quote = letter  # inside a word it is an apostrophe
        else:
            depth += (letter == "[") - (letter == "]")
        if letter == "," and not quote and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def in_options(message: str) -> str:
    """A message of the library as someone at a terminal can act on it.

    Examples
    --------
    >>> in_options("no column 'bag_id' (name another with bag=...)")
    "no column 'bag_id' (name another with --option bag=...)"
    >>> in_options("Name one with read(path, format=...)"), in_options("allow download=True to fetch it")
    ('Name one with --format ...', 'allow --option download=true to fetch it')
    """
    message = re.sub(
        r"\b(?:bagwise\.)?(?:read|load_dataset|from_frame)\([^()]*?(\w+=[^()]*)\)", r"\1", message
    )
    message = re.sub(r"\b(?:list_datasets|all_estimators)\(\)", "`bagwise list`", message)

    def option(found: re.Match[str]) -> str:
        name, value = found[1], {"True": "true", "False": "false"}.get(found[2], found[2])
        if name in _FLAGS:
            return f"--{name.replace('_', '-')}"
        return f"--{name} {value}" if name in _OWN else f"--option {name}={value}"

    return re.sub(r"(?<![\w'\"-])(?<!option )([a-z_]+)=(\.\.\.|\[\.\.\.\]|True\b|False\b)", option, message)


# ---------------------------------------------------------------------- names that a shell completes


def names_of_models(typed: str) -> list[tuple[str, str]]:
    """Estimators that begin with what was typed, with what they do.

    Examples
    --------
    >>> [name for name, _ in names_of_models("mimld")]
    ['MIMLDummy']
    """
    wanted = typed.lower()
    rows = described_estimators()
    return [(row["name"], row["summary"]) for row in rows if row["name"].lower().startswith(wanted)]


def names_of_data(typed: str) -> list[str]:
    """Data sets that begin with what was typed, and files.

    Examples
    --------
    >>> names_of_data("musk")
    ['musk1', 'musk2']
    """
    sets = [row["name"] for row in bagwise.datasets.list_datasets() if row["name"].startswith(typed)]
    place = Path(typed)
    folder, start = (place, "") if typed.endswith("/") else (place.parent, place.name)
    prefix = "" if str(folder) == "." and not typed.startswith("./") else typed[: len(typed) - len(start)]
    try:
        found = sorted(entry for entry in folder.iterdir() if entry.name.startswith(start))
    except OSError:
        return sets
    hidden = start.startswith(".")
    files = [f"{prefix}{e.name}{'/' if e.is_dir() else ''}" for e in found if hidden or e.name[0] != "."]
    return sets + files
