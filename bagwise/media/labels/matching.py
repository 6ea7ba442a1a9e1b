"""Which file a name in a table of labels means: by relative path, then by name, then by stem.

Each step is taken only for names that the step before left open:

1. the path relative to the gathered folder, with or without its suffix;
2. a path that ends like the other (``/home/me/birds/x/a.wav`` and ``x/a.wav``);
3. the name of the file alone;
4. its stem (``a`` for ``a.wav``), letters in either case.

A bag that is one of several in a file, ``table.csv#name``, goes by ``name`` as well.

A name that could mean several files, or a file that several names from different folders could mean, is an
error that names both. A name with folders of its own never takes a file that another name fits better.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath

from bagwise.errors import DataError
from bagwise.media.labels._parts import plain_name


def match_files(
    names: Iterable[str], files: Sequence[str], root: str | None = None
) -> tuple[dict[str, str], list[str]]:
    """Files by the names that a tool wrote, and the names that mean no file.

    Files are relative to the gathered folder, which is called ``root``; many tables write that before names.
    """
    wanted = {name: plain_name(name) for name in dict.fromkeys(names)}
    found: dict[str, str] = {}
    strong: dict[str, str] = {}  # file -> the name that meant it by its path
    exact = _index(files, lambda file: [file, file.removesuffix(PurePosixPath(file).suffix)])
    by_name = _index(files, lambda file: [_name(file), *_inside(file)])
    by_stem = _index(
        files, lambda file: [_stem(file).casefold(), *(name.casefold() for name in _inside(file))]
    )
    for name, plain in wanted.items():
        form = plain if plain in exact or not root else plain.removeprefix(f"{root}/")
        meant = exact.get(form, [])
        meant = [form] if form in meant else meant  # "a" itself before "a.wav"
        file = _only(name, meant) if meant else _tail(name, plain, by_name)
        if file is not None:
            found[name] = file
            strong.setdefault(file, name)
    weak: dict[str, str] = {}
    for name, plain in wanted.items():
        if name in found:
            continue
        candidates = by_name.get(_name(plain)) or by_stem.get(_name(plain).casefold())
        candidates = candidates or by_stem.get(_stem(plain).casefold()) or []
        if not candidates or ("/" in plain and len(candidates) == 1 and candidates[0] in strong):
            continue
        file = _only(name, candidates)
        if "/" in plain and file in weak and wanted[weak[file]] != plain:
            raise DataError(f"both {weak[file]!r} and {name!r} could mean {file!r}; give the paths in full")
        found[name] = file
        if "/" in plain:
            weak[file] = name
    return found, [name for name in wanted if name not in found]


def _index(files: Sequence[str], keys: Callable[[str], list[str]]) -> dict[str, list[str]]:
    index: dict[str, list[str]] = defaultdict(list)
    for file in files:
        for key in dict.fromkeys(keys(file)):
            index[key].append(file)
    return index


def _tail(name: str, plain: str, by_name: dict[str, list[str]]) -> str | None:
    if "/" not in plain:
        return None
    candidates = [
        file
        for file in by_name.get(_name(plain), ())
        if (plain.endswith(f"/{file}") and "/" in file) or file.endswith(f"/{plain}")
    ]
    return _only(name, candidates) if candidates else None


def _only(name: str, candidates: list[str]) -> str:
    if len(candidates) > 1:
        raise DataError(f"{name!r} could mean {candidates[0]!r} or {candidates[1]!r}; write the path in full")
    return candidates[0]


def _name(file: str) -> str:
    return file.rpartition("/")[2]


def _inside(file: str) -> list[str]:
    """The name of a bag inside a file that holds several, ``table.csv#name``."""
    return [file.partition("#")[2]] if "#" in file else []


def _stem(file: str) -> str:
    return PurePosixPath(file).stem
