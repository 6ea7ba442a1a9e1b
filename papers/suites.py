"""Suites: what a paper's experiments consist of, read from one TOML file; nothing else decides what runs.

A suite names data sets, methods and protocols, and the tables and figures made of them. Wherever a part of it
carries a sub-table ``short``, that is laid over the part when a run is asked to be short: fewer repeats or a
smaller grid, never another measure.
"""

from __future__ import annotations

import csv
import difflib
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from bagwise.errors import BagwiseError, DataError

_EXPERIMENT_KINDS = {"tables": "", "figures": "fig"}  # section of the file -> what the id begins with


@dataclass(frozen=True)
class Published:
    """A cell of a published table.

    Parameters
    ----------
    mean, std : float or None
        None where the paper has no value, or no spread.
    direction : {"higher", "lower", "none"}
        Where better values lie.
    mark : {"", "worse", "better"}
        How the paper's test judges the method against the proposed one.
    decimals : int
        As many as were printed.
    """

    mean: float | None
    std: float | None
    direction: str
    mark: str
    decimals: int


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a paper.

    Parameters
    ----------
    paper, name : str
        Such as "ored-logistic" and "3", or "fig8".
    spec : mapping
        Its part of the suite file.
    """

    paper: str
    name: str
    spec: Mapping[str, Any]

    @property
    def id(self) -> str:
        """How the command line calls it, such as "ored-logistic:3"."""
        return f"{self.paper}:{self.name}"

    @property
    def is_figure(self) -> bool:
        """Whether it is a figure rather than a table."""
        return self.name.startswith("fig")


@dataclass(frozen=True)
class Suite:
    """All experiments of one paper; see ``docs/reproduce.md`` for the keys of the file.

    Parameters
    ----------
    paper, title, reference : str
        Short name, method, and where it was published.
    datasets, methods, protocols : mapping of name to spec
        What experiments are made of, under the names that the paper uses.
    experiments : mapping of name to Experiment
        Tables and figures.
    published : mapping of (table, dataset, method, measure) to Published
        The paper's own figures.
    notes : tuple of mapping
        Sentences that explain cells, each with the names that it applies to.
    page : {"published", "leaderboard"}
        Whether its page shows ours beside published figures, or ranks of ours.
    """

    paper: str
    title: str
    reference: str
    datasets: Mapping[str, Mapping[str, Any]]
    methods: Mapping[str, Mapping[str, Any]]
    protocols: Mapping[str, Mapping[str, Any]]
    experiments: Mapping[str, Experiment]
    published: Mapping[tuple[str, str, str, str], Published] = field(default_factory=dict)
    notes: tuple[Mapping[str, Any], ...] = ()
    page: str = "published"


def papers() -> list[str]:
    """Names of the papers whose experiments are known.

    Examples
    --------
    >>> papers()
    ['miml-gp', 'mimlfast', 'mimlmix', 'mm-mil', 'ored-logistic']
    """
    folder = resources.files("papers").joinpath("published")
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir())


@cache
def paper_suite(paper: str) -> Suite:
    """Suite of a known paper."""
    if paper not in papers():
        raise BagwiseError(f"no paper {paper!r}; {_choice(paper, [*papers(), *own_suites()])}")
    with resources.as_file(resources.files("papers").joinpath("published", paper)) as folder:
        return read_suite(folder / "suite.toml", paper)


def own_suites() -> list[str]:
    """Names of the suites that repeat no paper; "all" leaves them out.

    Examples
    --------
    >>> own_suites()
    ['leaderboard']
    """
    folder = resources.files("papers").joinpath("own")
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir())


@cache
def own_suite(name: str) -> Suite:
    """Suite of our own by name."""
    with resources.as_file(resources.files("papers").joinpath("own", f"{name}.toml")) as path:
        return read_suite(path, name)


def read_suite(path: str | Path, paper: str | None = None) -> Suite:
    """Read a suite file and, where it lies beside it, ``published.csv``."""
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a suite: {error}") from None
    _check_keys(content, path)
    name = paper or path.stem
    experiments = {}
    for section, start in _EXPERIMENT_KINDS.items():
        for number, spec in content.get(section, {}).items():
            experiments[start + number] = Experiment(name, start + number, spec)
    table = path.with_name("published.csv")
    suite = Suite(
        paper=name,
        title=content.get("title", name),
        reference=content.get("reference", ""),
        datasets=content.get("datasets", {}),
        methods=content.get("methods", {}),
        protocols=content.get("protocols", {}),
        experiments=experiments,
        published=_with_spread(_read_published(table), content.get("tables", {})) if table.exists() else {},
        notes=tuple(content.get("notes", ())),
        page=content.get("page", "published"),
    )
    _check_names(suite, path)
    return suite


def find_experiments(target: str) -> list[tuple[Suite, Experiment]]:
    """Experiments meant by a target: "all", a paper, "paper:3", "paper:fig8", "leaderboard", or a suite file.

    Examples
    --------
    >>> [experiment.id for _, experiment in find_experiments("miml-gp:2")]
    ['miml-gp:2']
    """
    if target == "all":
        return [pair for paper in papers() for pair in find_experiments(paper)]
    place, colon, name = target.partition(":")
    if place.endswith(".toml"):
        suite = read_suite(place)
    else:
        suite = own_suite(place) if place in own_suites() else paper_suite(place)
    if not colon:
        return [(suite, experiment) for experiment in suite.experiments.values()]
    name = name.lower().removeprefix("table").replace("figure", "fig").replace(" ", "")
    if name not in suite.experiments:
        raise BagwiseError(f"{suite.paper} has no experiment {name!r}; {_choice(name, suite.experiments)}")
    return [(suite, suite.experiments[name])]


def shortened(spec: Mapping[str, Any], short: bool) -> dict[str, Any]:
    """A part of a suite without its ``short`` table, which is laid over it if asked for.

    Examples
    --------
    A part that is ``false`` there is left out altogether.

    >>> shortened({"repeats": 30, "search": {"cv": 3}, "short": {"repeats": 5, "search": False}}, True)
    {'repeats': 5}
    """
    plain = {key: value for key, value in spec.items() if key != "short"}
    if not short:
        return plain
    return {key: value for key, value in (plain | spec.get("short", {})).items() if value is not False}


def overlaid(spec: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with values replaced, table by table.

    Examples
    --------
    >>> overlaid({"params": {"a": 1, "b": 2}}, {"params": {"b": 3}})
    {'params': {'a': 1, 'b': 3}}
    """
    result = dict(spec)
    for key, value in more.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = overlaid(result[key], value) if both else value
    return result


_SECTIONS = {"title", "reference", "page", "datasets", "methods", "protocols", "tables", "figures", "notes"}
_OF_NOTES = {"experiments", "datasets", "methods", "measures", "text", "tried", "shared", "changes"}
_OF_TABLES = {"title", "protocol", "datasets", "measures"}  # what each must have
_OF_PROTOCOLS: dict[str, set[str]] = {"folds": {"n_splits"}, "holdout": {"train"}, "all": set()}


def _check_keys(content: Mapping[str, Any], path: Path) -> None:
    """Say which part of the file lacks a key, or has one that nothing reads."""

    def lacks(where: str, part: Any, needed: Iterable[str]) -> None:
        if not isinstance(part, Mapping):
            raise DataError(f"{path}: {where} is a table, not {part!r}")
        for key in needed:
            if key not in part:
                raise DataError(f"{path}: {where} has no {key!r}; docs/reproduce.md lists what it needs")

    def strange(where: str, keys: Iterable[str], known: Iterable[str]) -> None:
        for key in keys:
            if key not in known:
                raise DataError(f"{path}: {where} has a key {key!r}; {_choice(key, sorted(known))}")

    strange("the suite", content, _SECTIONS)
    for section in _EXPERIMENT_KINDS:
        for name, part in content.get(section, {}).items():
            lacks(f"{section}.{name}", part, sorted(_OF_TABLES))
    for name, part in content.get("protocols", {}).items():
        lacks(f"protocols.{name}", part, ["kind"])
        if part["kind"] not in _OF_PROTOCOLS:
            wrong = f"{path}: protocols.{name} has the kind {part['kind']!r}"
            raise DataError(f"{wrong}; {_choice(str(part['kind']), _OF_PROTOCOLS)}")
        lacks(f"protocols.{name}", part, sorted(_OF_PROTOCOLS[part["kind"]]))
    for name, part in content.get("methods", {}).items():
        lacks(f"methods.{name}", part, [] if "absent" in part else ["estimator"])
        for key, values in (part.get("settings") or {}).items():
            if not isinstance(values, list):
                raise DataError(f"{path}: methods.{name}.settings.{key} is a list of values, not {values!r}")
    for part in content.get("notes", ()):
        lacks("a note", part, ["text"])
        strange(f"the note {part['text'][:40]!r}", part, _OF_NOTES)


def _check_names(suite: Suite, path: Path) -> None:
    known_to_notes: dict[str, Collection[str]] = {
        "experiments": suite.experiments,
        "datasets": suite.datasets,
        "methods": {*suite.methods, *(s.get("shown_as", name) for name, s in suite.methods.items())},
        "measures": {name for each in suite.experiments.values() for name in each.spec["measures"]},
    }
    for note in suite.notes:
        for key, known in known_to_notes.items():
            for name in note.get(key, ()):
                if name not in known:
                    wrong = f"{path}: the note {note['text'][:40]!r} names {name!r}"
                    raise DataError(f"{wrong}, which is none of the suite's {key}; {_choice(name, known)}")
    for experiment in suite.experiments.values():
        spec = experiment.spec
        for key, known in (("datasets", suite.datasets), ("methods", suite.methods)):
            for name in spec.get(key, ()):
                if name not in known:
                    raise DataError(f"{path}: {experiment.name} names {name!r}, which is not in [{key}]")
        if spec.get("protocol") not in suite.protocols:
            raise DataError(
                f"{path}: {experiment.name} needs a protocol of [protocols], not {spec.get('protocol')!r}"
            )


def _read_published(path: Path) -> dict[tuple[str, str, str, str], Published]:
    found = {}
    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            _, _, digits = row["mean"].partition(".")
            found[row["table"], row["dataset"], row["method"], row["measure"]] = Published(
                _number(row["mean"]), _number(row["std"]), row["direction"], row["mark"], len(digits)
            )
    return found


_BOUNDS = "_ci95_low", "_ci95_high"  # what the names of published bounds of a mean end with


def _with_spread(
    found: dict[tuple[str, str, str, str], Published], tables: Mapping[str, Mapping[str, Any]]
) -> dict[tuple[str, str, str, str], Published]:
    """Published cells, with the std that follows from a 95 % interval of the mean where only that is printed.

    A table that prints such intervals says of how many repeats, as ``intervals``: half of one is
    t std / sqrt(n), with t of n - 1 degrees of freedom.
    """
    if not any("intervals" in spec for spec in tables.values()):
        return found
    from scipy.special import stdtrit  # not for suites that need none of SciPy

    result = dict(found)
    for (table, dataset, method, measure), cell in found.items():
        n = tables.get(table, {}).get("intervals")
        low, high = (found.get((table, dataset, method, measure + end)) for end in _BOUNDS)
        if n is None or cell.std is not None or low is None or high is None:
            continue
        if low.mean is not None and high.mean is not None:
            std = 0.5 * (high.mean - low.mean) * n**0.5 / float(stdtrit(n - 1, 0.975))
            result[table, dataset, method, measure] = replace(cell, std=round(std, cell.decimals))
    return result


def _number(text: str) -> float | None:
    return None if text in ("", "NA") else float(text)


def _choice(name: str, known: Iterable[str]) -> str:
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    return (f"did you mean {close[0]!r}? " if close else "") + f"there are {', '.join(known)}"
