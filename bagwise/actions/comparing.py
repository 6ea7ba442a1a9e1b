"""Comparing models: on a data set by file or name; and the demo, where they were shown more or less."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.actions.data import File, check_target, open_data
from bagwise.actions.verbs import make_model, train
from bagwise.bags import Bags, instance_rows
from bagwise.bags.dataset import Dataset
from bagwise.base import MIMLClassifier
from bagwise.datasets import load_dataset
from bagwise.errors import BagwiseError, DataError
from bagwise.metrics import (
    average_precision,
    coverage,
    hamming_loss,
    instance_accuracy,
    one_error,
    ranking_loss,
)
from bagwise.model_selection import Comparison
from bagwise.model_selection import compare as compare_models
from bagwise.registry import all_estimators
from bagwise.report.plots import plot_bags
from bagwise.report.results import annotation_table, write_tables
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


# ---------------------------------------------------------------------- the demo


# What the demo compares: estimator, what to call it, what it is shown.
_DEMO = (
    ("MIMLDummy", "dummy", "counts how often each digit occurs; sees no picture"),
    (
        "PooledClassifier",
        "forest on bag statistics",
        "sees mean, minimum, maximum ... of the pictures of a bag, and which digits occur in it",
    ),
    (
        "BagClassifier",
        "BagClassifier",
        "sees pictures, and which digits occur in each bag",
    ),
    (
        "SingleInstanceLogisticRegression",
        "logistic regression",
        "is shown the digit in every picture, as a yardstick",
    ),
)


def demo(
    out: File = "bagwise_demo",
    *,
    n_bags: int = 1000,
    seed: int = 0,
    step: Callable[..., None] = lambda **_: None,
) -> dict[str, Any]:
    """Learn to read digits from bags of pictures whose digits are listed, but not which is which.

    Parameters
    ----------
    out : path
        Folder for ``digits.png``, a picture of new bags with the digit found in each picture, and
        ``annotations.csv``, the same for all new bags.
    n_bags : int, default=1000
        Number of bags, seven tenths of them for training.
    seed : int, default=0
        Seed of the bags.
    step : callable, optional
        Called with ``description=`` before each step.

    Returns
    -------
    dict
        With "rows" (measures by model), "saw" (what each model was shown), "counts" and "files".
    """
    if n_bags < 20:
        raise BagwiseError(f"the demo needs at least 20 bags to learn from and to be judged by, got {n_bags}")
    folder = Path(out)
    check_target(folder / "digits.png")
    data = load_dataset("digits", n_bags=n_bags, random_state=seed)
    learn, new = data["train"], data["test"]
    assert isinstance(new.bags, Bags)
    present = [entry for entry in _DEMO if entry[0] in dict(all_estimators())]
    rows, models = {}, {}
    for name, title, _ in present:
        step(description=f"learning: {title} (compiles at the first run)")
        seeded = "random_state" in dict(all_estimators())[name]._parameters
        models[name] = train(learn, name, {"random_state": seed} if seeded else None)
        rows[title] = _measures(models[name], new)
    weak = [entry for entry in present if not models[entry[0]].traits.instance_labels][-1]
    step(description="drawing")
    labels = models[weak[0]].annotate(new.bags)
    scores = models[weak[0]].instance_scores(new.bags)
    write_tables([annotation_table(new.bags, labels, scores, new.label_names)], folder / "annotations.csv")
    _draw_demo(new, labels, weak[1], folder / "digits.png")
    counts = {"bags": len(learn), "pictures": learn.bags.n_instances}
    counts |= {"new_bags": len(new), "new_pictures": new.bags.n_instances}
    files = [str(folder / "digits.png"), str(folder / "annotations.csv")]
    saw = {title: seen for _, title, seen in present}
    return {"rows": rows, "saw": saw, "shown": weak[1], "counts": counts, "files": files}


def _measures(model: MIMLClassifier, new: Dataset) -> dict[str, float]:
    """The measures shown and no others, which spares the first run the compilation of their kernels."""
    scores, chosen = model.scores_and_labels(new.bags)
    found, given = model.annotate(new.bags), model.annotate(new.bags, new.Y)
    return {
        "instance_accuracy": instance_accuracy(new.instance_Y, found),
        "instance_accuracy_given_labels": instance_accuracy(new.instance_Y, given),
        "hamming_loss": hamming_loss(new.Y, chosen),
        "one_error": one_error(new.Y, scores),
        "coverage": coverage(new.Y, scores),
        "ranking_loss": ranking_loss(new.Y, scores),
        "average_precision": average_precision(new.Y, scores),
    }


def _draw_demo(new: Dataset, labels: np.ndarray, title: str, path: Path) -> None:
    """Twelve bags, if possible of four pictures or more: small ones leave little to find out."""
    assert isinstance(new.bags, Bags)
    which = np.argsort(new.bags.sizes < 4, kind="stable")[:12]
    rows, _ = instance_rows(new.bags.offsets, which)
    heading = f"Digits found by {title}: blue is right; orange is wrong, the true digit in brackets"
    figure = plot_bags(new[which], labels[rows], title=heading)
    with replacing(path) as temporary:
        figure.savefig(temporary)
