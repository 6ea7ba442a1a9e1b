"""What verbs on raw files share: options, a bar over files, and a word on files that gave nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise.utils.progress import progress

Jobs = Annotated[int, typer.Option("--n-jobs", "-j", help="Raw files read at the same time; -1: all cores.")]
CachePlace = Annotated[
    Path | None,
    typer.Option("--cache", help="Folder for what was read before; by default the user's cache folder."),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Keep nothing of what is read.")]
Labels = Annotated[
    str | None,
    typer.Option(
        "--labels", "-l", help="Labels of the raw files: a table, Raven, Audacity, COCO, ...; or: folders."
    ),
]
Raw = Callable[..., AbstractContextManager[dict[str, Any]]]
SOME_UNREADABLE = 1  # exit code when the rest was done
_NAMED = 20  # files of a kind that are listed


@contextmanager
def raw_files(
    n_jobs: int, cache: Path | None, no_cache: bool, labels: str | None = None, *, quiet: bool = False
) -> Iterator[dict[str, Any]]:
    """Arguments of an action for raw files, with a bar that shows how far it is and how long it takes."""
    place: Any = False if no_cache else True if cache is None else cache
    with progress("looking for files") as advance:

        def step(steps: int, name: str, total: int) -> None:
            advance(steps, name if len(name) <= 40 else f"...{name[-37:]}", total)

        step.advance = advance  # type: ignore[attr-defined]  # the bar itself, for shards

        def tell(line: str) -> None:
            if not quiet:
                typer.echo(line, err=True)

        found: dict[str, Any] = {"n_jobs": n_jobs, "cache": place, "say": tell, "step": step}
        yield found if labels is None else found | {"labels": labels}


def raw_options(n_jobs: Jobs = 1, cache: CachePlace = None, no_cache: NoCache = False) -> Raw:
    """Options of commands on raw files, which open `raw_files` with them."""
    return partial(raw_files, n_jobs, cache, no_cache)


def explain(done: dict[str, Any], say: Callable[[str], None]) -> None:
    """List what was left out, and why; nothing is dropped in silence."""
    _listed(say, done.get("without_labels"), "{n} without labels, left out")
    _listed(say, done.get("without_files"), "{n} with labels, but not there")
    _listed(say, done.get("empty"), "{n} in which nothing was found")
    reasons = [f"{path}: {reason}" for path, reason in done.get("unreadable") or ()]
    _listed(say, reasons, "{n} could not be read")


def leave(done: dict[str, Any]) -> None:
    """Exit with a code of its own if files could not be read."""
    if done.get("unreadable"):
        raise typer.Exit(SOME_UNREADABLE)


def _listed(say: Callable[[str], None], names: Any, title: str) -> None:
    if not names:
        return
    say(title.format(n=f"{len(names)} {'file' if len(names) == 1 else 'files'}") + ":")
    for name in names[:_NAMED]:
        say(f"  {name}")
    if len(names) > _NAMED:
        say(f"  and {len(names) - _NAMED} more (--json lists all)")
