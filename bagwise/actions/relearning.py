"""Learning again from corrections: the fit, and what changed by it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from bagwise.actions.gathering import filled_bags
from bagwise.actions.lesson import Lesson, lesson
from bagwise.actions.looking.answers import Answers
from bagwise.actions.looking.session import Session
from bagwise.actions.looking.values import UNKNOWN, number_or_none
from bagwise.actions.matching import File
from bagwise.bags import Bags
from bagwise.bags.dataset import Dataset
from bagwise.errors import BagwiseError
from bagwise.inspection import annotate, last_estimator

_MOST_CHANGES = 500  # listed; all are counted


# ---------------------------------------------------------------------- fitting


def takes_parts(model: Any) -> str:
    """How an estimator uses parts that are known, in one sentence."""
    traits = getattr(last_estimator(model), "traits", None)
    name = type(last_estimator(model)).__name__
    if getattr(traits, "known_instances", False):
        return f"{name} holds corrected parts fixed while it learns."
    if getattr(traits, "instance_labels", False):
        return f"{name} learns from labels of parts: corrected ones replace those of the data."
    return f"{name} cannot hold parts fixed: each corrected part is added as a bag of its own."


def fit_again(model: Any, what: Lesson) -> Any:
    """A copy of a fitted model, pipeline or search, fitted to a lesson.

    Transformers from raw files are kept as they are; other steps of a pipeline are fitted anew.

    Examples
    --------
    >>> from bagwise.datasets import make_digits
    >>> from bagwise.models import MIMLDummy
    >>> data = make_digits(n_bags=30)
    >>> known = np.full((data.bags.n_instances, 10), -1, dtype=np.int8)
    >>> fit_again(MIMLDummy().fit(data.bags, data.Y), Lesson(data, known, 0)).label_names_[0]
    '0'
    """
    while hasattr(model, "best_estimator_"):
        model = model.best_estimator_
    if isinstance(model, Pipeline):
        from bagwise.media.base import ToBags

        kept = [step for step in model.steps[:-1] if isinstance(step[1], ToBags)]
        middle = [(name, clone(step)) for name, step in model.steps[:-1] if not isinstance(step, ToBags)]
        bags = what.dataset.bags
        for _, step in middle:
            bags = step.fit_transform(bags, what.dataset.Y)
        changed = Lesson(_with_bags(what.dataset, bags), what.known, what.n_corrected)
        return Pipeline([*kept, *middle, (model.steps[-1][0], fit_again(model.steps[-1][1], changed))])
    copy = clone(model)
    dataset, known = _filled(copy, what)
    bags, Y = dataset.bags, dataset.Y
    assert isinstance(bags, Bags)
    some = bool((known >= 0).any())
    traits = getattr(copy, "traits", None)
    if some and getattr(traits, "known_instances", False):
        copy.fit(bags, _targets(model, Y), instance_y=known)
    elif getattr(traits, "instance_labels", False):
        copy.fit(_with_facts(copy, dataset, known), _targets(model, Y))
    else:
        if some:
            bags, Y = _with_singles(bags, Y, known)
        copy.fit(bags, _targets(model, Y))
    copy.label_names_ = dataset.label_names
    return copy


def _with_bags(dataset: Dataset, bags: Any) -> Dataset:
    return Dataset(bags, dataset.Y, dataset.label_names, recipe=dataset.recipe)


def _filled(model: Any, what: Lesson) -> tuple[Dataset, np.ndarray]:
    """The lesson without empty bags where the model cannot take them; they have no rows in ``known``."""
    return filled_bags(what.dataset, model)[0], what.known


def _targets(model: Any, Y: np.ndarray) -> np.ndarray:
    """Labels in the form that the model was fitted to: a matrix, or one class per bag."""
    kind = getattr(model, "_target", "multilabel")
    if kind == "multilabel":
        return Y
    if kind == "binary" and Y.shape[1] == 1:
        return model.classes_[Y[:, 0].astype(np.intp)]
    if kind == "multiclass" and Y.shape[1] == len(model.classes_) and (Y.sum(axis=1) == 1).all():
        return model.classes_[Y.argmax(axis=1)]
    raise BagwiseError(
        "this model was fitted to one class per bag, and after the corrections bags have none or several; "
        "fit it to label sets first"
    )


def _with_singles(bags: Bags, Y: np.ndarray, known: np.ndarray) -> tuple[Bags, np.ndarray]:
    """Known parts as further bags of one part each: the one way that every model of bags can learn from."""
    rows = np.flatnonzero((known == 1).any(axis=1) | ((known == 0).all(axis=1)))
    if not len(rows):
        return bags, Y
    plain = Bags(bags.X, bags.offsets, feature_names=bags.feature_names)
    singles = Bags(bags.X[rows], np.arange(len(rows) + 1), feature_names=bags.feature_names)
    return Bags.concat([plain, singles]), np.concatenate([Y, (known[rows] == 1).astype(Y.dtype)])


def _with_facts(model: Any, dataset: Dataset, known: np.ndarray) -> Bags:
    fact = getattr(model, "instance_labels", "label")
    given = dataset.instance_Y
    labels = np.full(dataset.bags.n_instances, -1) if given is None else np.array(given)
    said = (known == 1).any(axis=1)
    labels[said] = known[said].argmax(axis=1)
    assert isinstance(dataset.bags, Bags)
    return dataset.bags.with_info(**{fact: labels})


# ---------------------------------------------------------------------- what changed


def relearn(
    session: Session,
    out: File,
    *,
    train: File | None = None,
    step: Callable[[str, float], None] = lambda stage, share: None,
) -> dict[str, Any]:
    """Fit the session's model again with the corrections, save it, and say what changed.

    Parameters
    ----------
    session : Session
        Data, model and corrections.
    out : path
        Model file to write.
    train : path or name, optional
        Further data to learn from, such as those that the model was fitted to first.
    step : callable, optional
        Told of the stage ("preparing", "fitting", "scoring") and the share of it that is done.

    Returns
    -------
    dict
        What was learned from, quality on what people said before and after, and which bags changed labels;
        "values" and "chosen" hold the new answers for all bags.
    """
    from bagwise.persistence import save

    if session.answers is None:
        raise BagwiseError("there is no model to fit again; give one: bagwise look MODEL DATA")
    step("preparing", 0.0)
    old = session.answers
    what = lesson(session, train)
    step("fitting", 0.0)
    started = time.perf_counter()
    fitted = fit_again(old.model, what)
    seconds = time.perf_counter() - started
    save(fitted, out)
    new = Answers(fitted, session.bags)
    for done in new.steps():
        step("scoring", done / max(len(session.ids), 1))
    session.finish()
    return {
        "model": str(out),
        "seconds": seconds,
        "learned_from": {
            "n_bags": len(what.dataset),
            "n_corrected": what.n_corrected,
            "n_parts": int(((what.known == 1).any(axis=1) | (what.known == 0).all(axis=1)).sum()),
            "labels": list(what.dataset.label_names),
            "how": takes_parts(old.model),
        },
        "corrected": _corrected_quality(session, {"before": old, "after": new}),
        **_changes(session, old, new),
        "values": new.values,
        "chosen": new.chosen,
        "names": list(new.names),
    }


def _corrected_quality(session: Session, answers: Mapping[str, Answers]) -> dict[str, Any]:
    """Share of what people said that a model agrees with, for parts and for labels of bags."""
    found: dict[str, Any] = {}
    for when, one in answers.items():
        parts, bags = [0, 0], [0, 0]
        column = {name: k for k, name in enumerate(one.names)}
        for number in np.flatnonzero(session.spoken > 0):
            bag = session.ids[number]
            said = {p: a.label for p, a in session.corrections.parts(bag).items() if a.label is not None}
            if said:
                labels = np.asarray(annotate(one.model, session.bags[number : number + 1]))
                parts[0] += sum(int(labels[p] == column.get(label, -2)) for p, label in said.items())
                parts[1] += len(said)
            for name, answer in session.corrections.bag(bag).items():
                if answer in ("yes", "no"):
                    held = name in column and bool(one.chosen[number, column[name]])
                    bags[0] += held == (answer == "yes")
                    bags[1] += 1
        found[when] = {"parts": parts, "labels": bags}
    return found


def _changes(session: Session, old: Answers, new: Answers) -> dict[str, Any]:
    """Bags whose predicted labels changed, the largest steps first; and quality on all that is known."""
    names = list(dict.fromkeys([*old.names, *new.names]))

    def spread(matrix: np.ndarray, own: tuple[str, ...], fill: Any) -> np.ndarray:
        wide = np.full((len(matrix), len(names)), fill, dtype=matrix.dtype)
        wide[:, [names.index(name) for name in own]] = matrix
        return wide

    chosen = [spread(one.chosen, one.names, False) for one in (old, new)]
    values = [spread(one.values, one.names, 0.0) for one in (old, new)]
    bag, label = np.nonzero(chosen[0] != chosen[1])
    size = np.abs(values[1] - values[0])[bag, label]
    truth = session.wide_truth(names)
    order = np.argsort(-size, kind="stable")[:_MOST_CHANGES]
    rows = [
        {
            "number": int(b),
            "id": session.ids[b],
            "label": names[k],
            "before": number_or_none(values[0][b, k]),
            "after": number_or_none(values[1][b, k]),
            "added": bool(chosen[1][b, k]),
            "known": int(truth[b, k]),
        }
        for b, k in zip(bag[order].tolist(), label[order].tolist())
    ]
    judged = truth != UNKNOWN
    right = [int((c[judged] == (truth[judged] == 1)).sum()) for c in chosen]
    return {
        "n_changed_bags": len(np.unique(bag)),
        "n_changed": len(bag),
        "changes": rows,
        "known": {"right_before": right[0], "right_after": right[1], "judged": int(judged.sum())},
    }


def model_beside(model: File) -> Path:
    """Where the model that learned again is written: beside the first, which stays as it is.

    Examples
    --------
    >>> model_beside("birds.skops").name, model_beside("birds.again.skops").name
    ('birds.again.skops', 'birds.again.skops')
    """
    path = Path(model)
    stem = path.stem.removesuffix(".again")
    return path.with_name(f"{stem}.again{path.suffix or '.skops'}")
