"""Learning again from corrections: the training set, the fit, and what changed by it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from bagwise.actions.data import File, align_labels, open_data, without_empty
from bagwise.bags import Bags
from bagwise.bags.dataset import UNKNOWN, Dataset
from bagwise.errors import BagwiseError, DataError
from bagwise.inspection import annotate, last_estimator
from bagwise.look.answers import Answers, number_or_none, spread
from bagwise.look.session import Session
from bagwise.media.base import ToBags
from bagwise.persistence import save

_MOST_CHANGES = 500  # listed; all are counted


# ---------------------------------------------------------------------- the training set


class TrainingSet(NamedTuple):
    """What there is to learn: bags with labels, and what is known of their parts: 1, 0 or -1 per label."""

    dataset: Dataset
    known: np.ndarray
    n_corrected: int


def training_set(session: Session, train: File | Dataset | None = None) -> TrainingSet:
    """Bags and labels to learn from, with corrections in place.

    Without ``train``, all bags of labelled data; of data without labels the corrected ones, with what
    the model says where nobody corrected it. With ``train``, its bags and the corrected ones.
    """
    truth = session.truth
    corrected = np.flatnonzero(session.corrected > 0)
    use_all = session.dataset.has_labels and train is None
    which = np.arange(len(truth)) if use_all else corrected
    if not len(which) and train is None:
        raise BagwiseError(
            "there is nothing to learn from: these data have no labels and nobody has corrected a bag yet"
        )
    sets = session.shown(truth)[which].astype(np.int8)
    if session.dataset.has_labels:  # what is unsure stays as the data have it
        unsure = truth[which] == UNKNOWN
        given = np.zeros_like(sets)
        given[:, session.given_columns] = session.dataset[which].Y
        sets = np.where(unsure, given, sets)
    names, bags = list(session.names), session.bags[which]
    known = _known_parts(session, which, sets)
    if train is not None:
        first = train if isinstance(train, Dataset) else open_data(train)
        names, first_bags, first_Y = _aligned(first, names, bags)
        bags = Bags.concat([first_bags, bags])
        nothing = np.full((first_bags.n_instances, len(names)), -1)
        known = np.concatenate([nothing, spread(known, len(names), -1)])
        sets = np.concatenate([first_Y, spread(sets, len(names), 0)])
    some = np.flatnonzero(sets.any(axis=0) | np.isin(names, session.corrections.labels()))
    if not len(some):
        raise BagwiseError("there is nothing to learn from: no bag carries a label")
    dataset = Dataset(bags, sets[:, some], tuple(names[k] for k in some), recipe=session.dataset.recipe)
    return TrainingSet(dataset, known[:, some].astype(np.int8), len(corrected))


def _aligned(first: Dataset, names: list[str], bags: Bags) -> tuple[list[str], Bags, np.ndarray]:
    """Data that the model learned from before, with labels in one order with the new ones."""
    if not isinstance(first.bags, Bags) or first.bags.n_features != bags.n_features:
        raise DataError(
            f"the data to learn from have {first.bags.shape[1]} features, those looked at {bags.n_features}"
        )
    together = list(dict.fromkeys([*names, *first.label_names]))
    Y, _, _ = align_labels(first, together)
    plain = Bags(first.bags.X, first.bags.offsets, feature_names=bags.feature_names)
    n = plain.n_instances  # facts that only the other bags have are zero; models never see them
    facts = {name: np.zeros((n, *v.shape[1:]), dtype=v.dtype) for name, v in bags.instance_info.items()}
    return together, plain.with_info(**facts), Y


def _known_parts(session: Session, which: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """1 where a part carries a label, 0 where it does not, -1 where nobody said so."""
    sizes = session.sizes[which]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    known = np.full((starts[-1], len(session.names)), -1, dtype=np.int8)
    for at, number in enumerate(which):
        if session.corrected[number]:
            for part, said in session.corrections.parts(session.ids[number]).items():
                row = known[starts[at] + part]
                if said.none:
                    row[:] = 0
                for name in said.not_labels:
                    row[session.column[name]] = 0
                column = session.column.get(said.label or "", -1)
                if column >= 0 and sets[at, column]:  # else the bag was denied the label afterwards
                    row[column] = 1
    return known


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


def fit_again(model: Any, training: TrainingSet) -> Any:
    """A copy of a fitted model, pipeline or search, fitted to a training set.

    Transformers from raw files are kept as they are; other steps of a pipeline are fitted anew.

    Examples
    --------
    >>> from bagwise.datasets import make_digits
    >>> from bagwise.models import MIMLDummy
    >>> data = make_digits(n_bags=30)
    >>> known = np.full((data.bags.n_instances, 10), -1, dtype=np.int8)
    >>> fit_again(MIMLDummy().fit(data.bags, data.Y), TrainingSet(data, known, 0)).label_names_[0]
    '0'
    """
    while hasattr(model, "best_estimator_"):
        model = model.best_estimator_
    if isinstance(model, Pipeline):
        kept = [step for step in model.steps[:-1] if isinstance(step[1], ToBags)]
        middle = [(name, clone(step)) for name, step in model.steps[:-1] if not isinstance(step, ToBags)]
        bags = training.dataset.bags
        for _, step in middle:
            bags = step.fit_transform(bags, training.dataset.Y)
        given = training.dataset
        dataset = Dataset(bags, given.Y, given.label_names, recipe=given.recipe)
        changed = training._replace(dataset=dataset)
        return Pipeline([*kept, *middle, (model.steps[-1][0], fit_again(model.steps[-1][1], changed))])
    copy = clone(model)
    # bags without instances go where the model cannot take them; they have no rows in ``known``
    dataset, known = without_empty(training.dataset, copy).data, training.known
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
        Called with the stage ("preparing", "fitting", "scoring") and the share of it that is done.

    Returns
    -------
    dict
        What was learned from, quality on what people said before and after, and which bags changed labels;
        "values" and "chosen" hold the new answers for all bags.
    """
    if session.answers is None:
        raise BagwiseError("there is no model to fit again; give one: bagwise look MODEL DATA")
    step("preparing", 0.0)
    old = session.answers
    training = training_set(session, train)
    step("fitting", 0.0)
    started = time.perf_counter()
    fitted = fit_again(old.model, training)
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
            "n_bags": len(training.dataset),
            "n_corrected": training.n_corrected,
            "n_parts": int(((training.known == 1).any(axis=1) | (training.known == 0).all(axis=1)).sum()),
            "labels": list(training.dataset.label_names),
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
        for number in np.flatnonzero(session.corrected > 0):
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

    own = [[names.index(name) for name in one.names] for one in (old, new)]
    chosen = [spread(one.chosen, len(names), False, k) for one, k in zip((old, new), own)]
    values = [spread(one.values, len(names), 0.0, k) for one, k in zip((old, new), own)]
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
