"""Comparing models on a data set by file or name."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bagwise.actions.data import File, open_data
from bagwise.actions.verbs import make_model
from bagwise.errors import BagwiseError, DataError
from bagwise.model_selection import Comparison
from bagwise.model_selection import compare as compare_models
from bagwise.utils.files import replacing


def compare(
    data: File,
    models: Sequence[str] | None = None,
    *,
    cv: int = 5,
    repeats: int = 2,
    measure: str | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
    out: File | None = None,
    step: Callable[..., None] | None = None,
    **where: Any,
) -> Comparison:
    """Cross-validate models by name on a data set; see `bagwise.model_selection.compare`.

    Parameters
    ----------
    data : path or name
        The data set; its labels are needed.
    models : sequence of str, optional
        Names of estimators; by default a choice that suits the data.
    cv, repeats, measure, seed, n_jobs
        As in `bagwise.model_selection.compare`.
    out : path, optional
        Folder that keeps finished fits, the table (comparison.csv) and the plot (comparison.svg).
    step : callable, optional
        Moves a progress bar.
    **where
        Part, view, format and options; see `open_data`.

    Examples
    --------
    >>> compare("digits", ["MIMLDummy"], cv=2, repeats=1, options={"n_bags": 60}).models[-1]
    'dummy'
    """
    chosen = None if models is None else [make_model(name) for name in models]
    dataset = open_data(data, **where)
    if not dataset.has_labels:
        raise DataError("models are compared on labelled bags; these have no labels", path=data)
    try:
        result = compare_models(
            chosen,
            dataset.bags,
            dataset.Y,
            instance_Y=dataset.instance_Y if not isinstance(dataset.instance_Y, dict) else None,
            cv=cv,
            repeats=repeats,
            measure=measure,
            random_state=seed,
            n_jobs=n_jobs,
            folder=None if out is None else Path(out) / "fits",
            step=step,
        )
    except BagwiseError:
        raise
    except ValueError as error:
        raise BagwiseError(f"cannot compare models on {data}: {error}") from error
    if out is not None:
        _write(result, Path(out))
    return result


def _write(result: Comparison, folder: Path) -> None:
    """The table of all fits, and the plot."""
    names = list(dict.fromkeys(name for fit in result.fits for name in fit.measures))
    with replacing(folder / "comparison.csv") as path, open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["model", "repeat", "fold", *names, "seconds", "cpu_seconds", "error"])
        for fit in result.fits:
            values = [fit.measures.get(name, "") for name in names]
            writer.writerow(
                [fit.model, fit.repeat, fit.fold, *values, fit.seconds, fit.cpu_seconds, fit.error]
            )
    with replacing(folder / "comparison.svg") as path:
        result.plot().savefig(path)
