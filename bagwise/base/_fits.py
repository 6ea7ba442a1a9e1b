"""Learning from shards and answering them part by part; several models fitted to the same bags."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from bagwise.base.blocks import Block, blocks_of_shards
from bagwise.base.parameters import check_parameters
from bagwise.compute.aligned import memory_used_again
from bagwise.compute.journal import current_journal
from bagwise.compute.parts import map_parts, map_reduce
from bagwise.errors import DataError, listed
from bagwise.utils.catalogue import described_estimators

__all__ = ["check_takes_shards", "fit_sharded", "over_parts", "remember_input", "score_sharded"]


def fit_several(models: Sequence[Any], X: Any, y: Any) -> None:
    """Fit models of one class to the same bags in memory, as ``fit`` does one after the other.

    A class that can do better has ``_fit_several(models, bags, Y)``, for models that are checked and know
    their features and labels.
    """
    together = getattr(type(models[0]), "_fit_several", None)
    if together is None:
        for model in models:
            model.fit(X, y)
        return
    for model in models:
        check_parameters(model, model._parameters)
        bags, targets = model._check_training(X, y)
    together(models, bags, targets)


# ----------------------------------------------------------------------
# Learning from shards and answering them part by part: for data that outgrow the memory


def fit_sharded(model: Any, shards: Any, y: Any, **beside: Any) -> Any:
    """Fit a model to shards, whose labels are inside; see `MIMLClassifier.fit`."""
    name = type(model).__name__
    check_takes_shards(model, name)
    if y is not None or any(value is not None for value in beside.values()):
        given = ["y"] * (y is not None) + [key for key, value in beside.items() if value is not None]
        raise DataError(f"shards carry their labels inside; leave out {' and '.join(given)}: fit(shards)")
    if not shards.has_labels:
        raise DataError("these shards hold no labels to learn from", path=shards.place.folder)
    if not len(shards):
        raise DataError("Found array with 0 sample(s): there is no bag to learn from or to predict")
    _check_input(model, shards, name)
    _remember(model, shards)
    settings = {key: value for key, value in model.get_params(deep=False).items() if key != "n_jobs"}
    about = f"{name}({', '.join(f'{k}={v!r}' for k, v in settings.items())})"
    journal = current_journal()
    fitting = nullcontext() if journal is None else journal.fitting(shards.fingerprint, about)
    with fitting, memory_used_again():  # from the first pass to the last
        model._fit_blocks(blocks_of_shards(shards))
    return model


def check_takes_shards(model: Any, name: str) -> None:
    """Refuse, with what to use instead, a method that needs all bags at once."""
    if not model.traits.shards:
        others = [row["name"] for row in described_estimators() if row["traits"] and row["traits"]["shards"]]
        raise TypeError(
            f"{name} needs all bags at once and does not learn from shards; use {', '.join(others)}, or "
            "fit it to a sample: data = shards.sample(n); fit(data.bags, data.Y)"
        )


def _check_input(model: Any, shards: Any, name: str) -> None:
    if shards.view_names and not model.traits.views:
        views = ", ".join(shards.view_names)
        raise TypeError(f"{name} takes one view; pick one with shards.view(name) (the views are {views})")
    if shards.is_sparse and not model.traits.sparse:
        raise DataError(f"{name} does not take sparse instances")
    if model.traits.empty_bags or not any(part.n_empty for part in shards.manifest.parts):
        return
    empty = np.flatnonzero(shards.sizes == 0)
    if empty.size:
        some = listed(shards.bag_ids[empty].tolist(), 5, show=repr)
        raise DataError(
            f"{name} needs at least one instance per bag; empty: {some}; leave them out: "
            "shards[shards.sizes > 0]"
        )


def remember_input(model: Any, shards: Any) -> None:
    """Number and names of the features, which later input must have."""
    model.n_features_in_ = shards.n_features
    model._remember_names(shards.feature_names)


def _remember(model: Any, shards: Any) -> None:
    """What `fit` keeps of its input, for later checks."""
    remember_input(model, shards)
    if hasattr(model, "view_features_in_"):
        del model.view_features_in_
    if shards.view_names:
        views = shards.manifest.views
        model.view_features_in_ = {view: views[view]["n_features"] for view in shards.view_names}
    model.label_names_ = shards.label_names
    model._target, model._target_dtype = "multilabel", "int64"
    model.classes_ = np.tile([0, 1], (len(shards.label_names), 1))


# ---------------------------------------------------------------------- answers


def over_parts(model: Any, method: str, shards: Any, Y: Any = None, **options: Any) -> Any:
    """Answers of a fitted model for all parts, one after the other, put together."""
    if isinstance(Y, (np.ndarray, list)):
        ends = np.cumsum(shards.part_bags)
        parts = [
            getattr(model, method)(shards.part(k).bags, Y[end - n : end], **options)
            for k, (end, n) in enumerate(zip(ends, shards.part_bags))
            if n
        ]
    else:
        params = (model, method, Y is True, options)
        parts = list(map_parts(_answer, params, blocks_of_shards(shards)))
    return _joined(parts)


def _answer(params: Any, block: Block) -> Any:
    model, method, use_labels, options = params
    known = (block.Y,) if use_labels else ()
    return getattr(model, method)(block.bags, *known, **options)


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], tuple):
        return tuple(_joined(list(column)) for column in zip(*parts))
    if isinstance(parts[0], dict):
        return {view: _joined([part[view] for part in parts]) for view in parts[0]}
    return np.concatenate(parts)


def score_sharded(model: Any, shards: Any) -> float:
    """Share of bags whose label set is predicted exactly; labels go by name."""
    if not shards.has_labels:
        raise DataError("these shards hold no labels to compare with", path=shards.place.folder)
    names = getattr(model, "label_names_", shards.label_names)
    if tuple(names) != shards.label_names:
        raise DataError(
            "model and shards have other labels, or another order; bagwise score matches them by name"
        )
    right, n = map_reduce(_exact, model, blocks_of_shards(shards))
    return right / n


def _exact(model: Any, block: Block) -> tuple[int, int]:
    right = (np.asarray(model.predict(block.bags)) == block.Y).all(axis=1)
    return int(right.sum()), len(right)
