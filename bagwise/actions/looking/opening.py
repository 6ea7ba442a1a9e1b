"""Opening data, and a model, for looking; and all about one bag in a single call."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from bagwise.actions.correcting import Corrections
from bagwise.actions.gathering import Opened, open_for
from bagwise.actions.looking.session import Session
from bagwise.actions.matching import File, open_data
from bagwise.datasets import list_datasets
from bagwise.errors import DataError
from bagwise.media.gathering import collect
from bagwise.media.recipe import transformers


def open_session(
    data: File,
    model: File | None = None,
    *,
    corrections: File | None = None,
    author: str | None = None,
    originals: File | None = None,
    **where: Any,
) -> Session:
    """Open data, and a model if one is given, for looking.

    Parameters
    ----------
    data : path or name
        The data set: a file, a folder of originals, or the name of a registered set.
    model : path, optional
        Model file; without one the data are looked at alone.
    corrections : path, optional
        File of corrections; by default ``corrections.jsonl`` beside the data, and in the working folder for
        a registered set.
    author : str, optional
        Who corrects; by default whoever is logged in.
    originals : path, optional
        Folder of the recordings, pictures or texts that bags were cut from; by default that of the data.
    **where
        Part, view, format and options of a data set, see `open_data`; ``labels``, ``n_jobs``, ``say`` and
        ``step`` for raw files, see `open_for`.

    Examples
    --------
    >>> session = open_session("digits", options={"n_bags": 20})
    >>> session.table.rows(limit=1)["rows"][0]["id"]
    'n00'
    """
    from bagwise.persistence import load

    fitted = None if model is None else load(model)
    opened = _opened(data, where) if fitted is None else open_for(fitted, data, **where)
    dataset = opened.dataset
    if not len(dataset):
        raise DataError("holds no bags to look at", path=data)
    named = any(str(data) == row["name"] for row in list_datasets())
    beside = Path(data).absolute()
    place = Path.cwd() if named else beside if beside.is_dir() else beside.parent
    kept = Corrections(
        place / "corrections.jsonl" if corrections is None else corrections,
        str(data) if named else beside.name,
        author=author,
        model=None if model is None else Path(model).name,
    )
    root = Path(originals) if originals is not None else None if named else place
    told = {
        name: str(value) if isinstance(value, PathLike) else value
        for name, value in where.items()
        if value is not None and not callable(value)
    }
    source = {"data": str(data), "model": None if model is None else str(model), "where": told}
    return Session(dataset, fitted, kept, source=source, root=root, opened=opened)


def explain(data: File, bag: str, model: File | None = None, **more: Any) -> dict[str, Any]:
    """Say all about one bag: its labels, its parts with the values of all labels, and where they lie.

    Parameters
    ----------
    data : path or name
        The data set, or raw files.
    bag : str
        Id of the bag.
    model : path, optional
        Model file.
    **more
        As for `open_session`.

    Examples
    --------
    >>> found = explain("digits", "n03", options={"n_bags": 20})
    >>> found["size"] == len(found["parts"]), found["view"]["kind"]
    (True, 'pictures')
    """
    session = open_session(data, model, **more)
    if bag not in session.numbers:
        raise DataError(f"no bag {bag!r}; the first is {session.ids[0]!r}", path=data)
    return {**session.explain(session.numbers[bag]), "names": session.names}


def _opened(data: File, where: dict[str, Any]) -> Opened:
    """Data to look at without a model: a data set, or raw files, cut as `bagwise gather` cuts them."""
    given = {name: where[name] for name in ("part", "view", "format", "options") if where.get(name)}
    path = Path(data)
    raw = path.is_dir() or any(path.name.lower().endswith(kind.suffixes) for kind in transformers())
    try:
        return Opened(open_data(data, **given))
    except DataError:
        if given or not raw or not path.exists():
            raise
    told = {name: where[name] for name in ("labels", "n_jobs", "say", "step") if where.get(name)}
    found = collect(data, told.pop("labels", None), **told)
    return Opened(found.dataset, found.empty, found.unreadable, found.paths)
