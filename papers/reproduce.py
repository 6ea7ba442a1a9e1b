"""Repeat the papers' experiments: run what is missing, then show ours beside the published figures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from bagwise.errors import BagwiseError
from bagwise.utils.files import replacing
from papers.pages.beyond import beyond_short
from papers.pages.cells import ResultTable
from papers.pages.leaderboard import leaderboard
from papers.pages.render import write
from papers.pages.summary import command_of, introduction, origin, overview, rows_at
from papers.pages.summary import summary as summary_page
from papers.problems import status_of
from papers.results import results_of
from papers.rows import Store
from papers.run import Change, run_tasks
from papers.run import verify as verify_rows
from papers.suites import Experiment, Suite, find_experiments, shortened
from papers.tasks import NO_METHOD, Task, tasks_of
from papers.trials import extents_of, tasks_of_trial, trials_of

_STATUS = {"at hand": "at hand", "generated": "at hand", "download": "downloadable", "by hand": "by hand"}


def list_experiments(targets: Sequence[str] = ("all",)) -> list[dict[str, Any]]:
    """Every table and figure with its data sets, methods and expected time.

    Returns
    -------
    list of dict
        ``id``, ``title``, ``datasets`` (name -> "at hand", "downloadable", "by hand" or "not public"),
        ``methods`` (name -> "implemented" or "not yet"), ``fits`` and ``minutes`` of the whole run, and
        ``short_fits`` and ``short_minutes``, for two cores; None where nobody has run it all.
    """
    found = []
    for suite, experiment in _wanted(targets):
        spec = experiment.spec
        methods = {
            suite.methods[name].get("shown_as", name): "not yet"
            if "absent" in suite.methods[name]
            else "implemented"
            for name in spec.get("methods", ())
        }
        found.append(
            {
                "id": experiment.id,
                "title": spec["title"],
                "datasets": {
                    name: _STATUS.get(status_of(suite.datasets[name]), "not public")
                    for name in spec["datasets"]
                },
                "methods": methods,
                "fits": len(tasks_of(suite, experiment)),
                "minutes": spec.get("minutes"),
                "short_fits": len(tasks_of(suite, experiment, short=True)),
                "short_minutes": shortened(spec, True).get("minutes"),
            }
        )
    return found


def reproduce(
    targets: Sequence[str],
    out: str | PathLike[str],
    *,
    methods: Collection[str] | None = None,
    datasets: Collection[str] | None = None,
    short: bool = False,
    n_jobs: int | None = None,
    retry: bool = False,
    reasons: bool = False,
    verify: bool = False,
    run: bool = True,
    page: str | PathLike[str] | None = None,
    summary: str | PathLike[str] | None = None,
    against_short: bool = False,
    merge: Sequence[str | PathLike[str]] = (),
    step: Callable[..., None] | None = None,
) -> dict[str, Any]:
    """Run experiments as far as they have not been run, and write their tables and figures.

    Parameters
    ----------
    targets : sequence of str
        "all", a paper, or one of its tables or figures such as "ored-logistic:3"; or a suite file.
    out : path
        Folder for the rows, which a later call goes on from, and for the pages.
    methods, datasets : collection of str, optional
        Only these, by the names of the paper.
    short : bool, default=False
        Fewer repeats and smaller grids, as the suites say; else the paper's protocol.
    n_jobs : int, optional
        Fits at the same time.
    retry : bool, default=False
        Whether to run fits again that have failed.
    reasons : bool, default=False
        Whether to run what was tried on cells outside the published figures, too.
    verify : bool, default=False
        Whether to run one finished fit of every cell again and compare: rows do not show that a method has
        changed since. Nothing else is run then; with ``retry`` what is missing is, and every fit of the cells
        that came out otherwise. What was tried is looked at with ``reasons``.
    run : bool, default=True
        Whether to run anything; False only shows what there is.
    page : path, optional
        One Markdown page with all results; the rows behind it go into the folder of its pictures, where
        ``merge`` can take them from.
    summary : path, optional
        One Markdown page that says per paper what held, what did not, and why.
    against_short : bool, default=False
        Whether the page is about what goes beyond the short run: only experiments of which such fits were
        run, and at its head which they are and which verdicts they change.
    merge : sequence of paths
        Folders of other runs, as of other machines, whose rows are taken over first.
    step : callable, optional
        Called as ``step(n_new, text, n_all)`` at first and after every fit.

    Returns
    -------
    dict
        ``results`` (tables and figures), ``run``, ``known`` and ``failed`` (numbers of fits), ``unavailable``
        (data sets with the reason) and ``files``; with ``verify`` also ``verified`` (number of cells) and
        ``changed`` (those that came out otherwise, each with what the row says and what came out).
    """
    if against_short and (short or page is None):
        raise BagwiseError("--against-short is for a page of the whole protocol: give --page, and no --short")
    if verify and not run:
        raise BagwiseError("--verify runs fits again, and --show runs none: give one of them")
    wanted = _wanted(targets)
    asked: dict[str, Any] = {"methods": methods, "datasets": datasets}
    methods, datasets = _known_names(wanted, "methods", methods), _known_names(wanted, "datasets", datasets)
    store = Store(out)
    tasks = [
        task
        for suite, experiment in wanted
        for task in tasks_of(suite, experiment, short=short, methods=methods, datasets=datasets)
    ]
    tried: list[Task] = []
    needs: dict[str, set[str]] = {}  # measures that changes are judged by, of fits that may be older
    for suite, experiment in wanted:
        for trial in trials_of(suite, experiment, methods=methods, datasets=datasets):
            of_trial = tasks_of_trial(suite, trial)
            tried += of_trial
            for task in of_trial:
                needs.setdefault(task.digest, set()).update(trial.experiment.spec["named"].values())
    for other in merge:
        store.merge(other)
    counts = {"run": 0, "known": 0, "failed": 0}
    unavailable: dict[str, str] = {}
    found: dict[str, Any] = {}
    to_run = [*tasks, *tried] if reasons else tasks
    doubtful: set[str] = set()
    if verify:
        verdict = verify_rows(to_run, store, n_jobs=n_jobs, step=step)
        found = {"verified": verdict.n_cells, "changed": [_as_dict(change) for change in verdict.changed]}
        doubtful = {digest for change in verdict.changed for digest in change.hashes}
    if run and (retry or not verify):
        outcome = run_tasks(
            to_run,
            store,
            n_jobs=n_jobs,
            retry=retry,
            renew=doubtful,
            needs=needs if reasons else None,
            step=step,
        )
        counts = {"run": outcome.n_run, "known": outcome.n_known, "failed": outcome.n_failed}
        unavailable = outcome.unavailable
    rows = store.rows()
    in_table = {task.digest for task in tasks}
    shows_tried = any(task.digest in rows and task.digest not in in_table for task in tried)
    shows_tried = shows_tried and not against_short
    command = command_of(targets, short, reasons or shows_tried, **asked)
    only: dict[str, Any] = {"methods": methods, "datasets": datasets}
    results = [
        result
        for suite, experiment in wanted
        for result in results_of(suite, experiment, rows, short=short, unavailable=unavailable, **only)
    ]
    used = [rows[task.digest] for task in (*tasks, *tried) if task.digest in rows]
    files = write(results, Path(out) / "pages", command=command, origin=origin(used))
    if page is not None:
        if all(suite.page == "leaderboard" for suite, _ in wanted):
            made = leaderboard(
                [r for r in results if isinstance(r, ResultTable)],
                used,
                Path(page).stem,
                "\n\n".join([f"Made by `{command}`.", *origin(used), rows_at(Path(page).stem)]),
            )
        elif against_short:
            made = _beyond(wanted, rows, only, Path(page).stem, f"{command} --against-short")
        else:
            made = overview(results, Path(page).stem, introduction(used, command, Path(page).stem))
        files += _write_page(*made, Path(page))
        behind = {task.digest for task in (tasks if against_short else (*tasks, *tried))}
        if against_short:  # the others belong to the page of the short run
            behind -= {
                t.digest for suite, experiment in wanted for t in tasks_of(suite, experiment, short=True)
            }
        files.append(store.export(Path(page).with_suffix(""), behind))
    if summary is not None:
        papers = {suite.paper: (suite.title, suite.reference) for suite, _ in wanted}
        tables = [result for result in results if isinstance(result, ResultTable)]
        opening = introduction(used, f"{command} --summary {Path(summary).name}")
        files += _write_page(*summary_page(tables, papers, Path(summary).stem, opening), Path(summary))
    files_written = [str(file) for file in files]
    return {"results": results, **counts, **found, "unavailable": unavailable, "files": files_written}


def _as_dict(change: Change) -> dict[str, Any]:
    """A cell that comes out otherwise now, in plain types."""
    task = change.task
    said = {"dataset": task.dataset, "method": task.method, "parameters": task.setting, "repeat": task.key}
    return said | {"fits": len(change.hashes), "measures": change.measures, "error": change.error}


def _beyond(
    wanted: Sequence[tuple[Suite, Experiment]],
    rows: Mapping[str, Any],
    only: Mapping[str, Any],
    folder: str,
    command: str,
) -> tuple[str, dict[str, str]]:
    """The page about what goes beyond the short run, on the data sets that it was run on; its pictures."""
    extents, used = [], []
    results: dict[bool, list[Any]] = {False: [], True: []}  # by whether they are those of the short run
    for suite, experiment in wanted:
        of_one = extents_of(suite, experiment, rows, **only)
        extents += of_one
        here = {"methods": only["methods"], "datasets": {one.dataset for one in of_one if one.is_begun}}
        used += [rows[task.digest] for task in tasks_of(suite, experiment, **here) if task.digest in rows]
        for short, found in results.items():
            shown = results_of(suite, experiment, rows, short=short, **here)
            # changes are laid over the short run, and shown on its page
            found += [replace(one, tried=()) if isinstance(one, ResultTable) else one for one in shown]
    tables = [[one for one in found if isinstance(one, ResultTable)] for found in results.values()]
    head = [introduction(used, command, folder, whole=False), beyond_short(extents, *tables)]
    return overview(results[False], folder, "\n\n".join(head), "Published experiments, repeated in full")


def _write_page(text: str, pictures: Mapping[str, str | bytes], page: Path) -> list[Path]:
    """One page, with its pictures in a folder of the same name."""
    files = [page.with_suffix("") / name for name in pictures]
    for file, content in zip([*files, page], [*pictures.values(), text]):
        with replacing(file) as temporary:
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    return [*files, page]


def _wanted(targets: Sequence[str]) -> list[tuple[Suite, Experiment]]:
    found: dict[str, tuple[Suite, Experiment]] = {}
    for target in targets:
        for suite, experiment in find_experiments(target):
            if found.setdefault(experiment.id, (suite, experiment)) != (suite, experiment):
                raise BagwiseError(
                    f"two suites have an experiment {experiment.id}; call one of the files by another name"
                )
    return list(found.values())


def _known_names(
    wanted: Sequence[tuple[Suite, Experiment]], key: str, names: Collection[str] | None
) -> set[str] | None:
    """Names in the suites for those that a user gave, which may be the ones that tables show."""
    if not names:
        return None
    known: dict[str, set[str]] = {}
    for suite, experiment in wanted:
        for name in experiment.spec.get(key, [NO_METHOD]):
            spec = getattr(suite, key).get(name, {})
            for alias in {name, spec.get("shown_as", name), spec.get("stands_for", name)}:
                known.setdefault(alias, set()).add(name)
    for name in names:
        if name not in known:
            word = "method" if key == "methods" else "data set"
            raise BagwiseError(f"no {word} {name!r} here; there are {', '.join(sorted(known))}")
    return set().union(*(known[name] for name in names))
