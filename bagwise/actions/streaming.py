"""The verbs on shards: fit, predict, annotate and score part by part, here or on a cluster."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.actions.gathering import with_recipe
from bagwise.actions.learning import make_model
from bagwise.actions.matching import File, align_labels, check_target
from bagwise.actions.sharding import open_shards, wants_shards
from bagwise.bags import Bags
from bagwise.bags.dataset import Dataset
from bagwise.bags.labels import unknown_label
from bagwise.base.blocks import Block, blocks_of_shards
from bagwise.compute.journal import checkpoint as going_on
from bagwise.compute.parts import map_parts, watched
from bagwise.errors import BagwiseError, DataError
from bagwise.inspection import annotate as annotate_instances
from bagwise.inspection import instance_scores, label_names, last_estimator, scores_and_labels
from bagwise.media.recipe import describe
from bagwise.metrics import evaluate
from bagwise.persistence import save
from bagwise.report.results import annotation_table, check_suffix, prediction_table, write_tables
from bagwise.shards import ShardedBags
from bagwise.shards.manifest import part_name
from bagwise.shards.place import Place

__all__ = ["annotate_shards", "fit_shards", "predict_shards", "score_shards", "shards_of"]

Advance = Callable[..., None]


def shards_of(data: Any, where: Mapping[str, Any]) -> ShardedBags | None:
    """Shards, where data are such; None for all else."""
    if isinstance(data, (list, tuple)):
        data = data[0] if len(data) == 1 else None
    if data is None:
        return None
    names = ("part", "view", "format", "options")
    return open_shards(data, **{key: where[key] for key in names if key in where})


class _Running(ExitStack):
    """A cluster, a checkpoint and a progress bar around a run, as far as they are wanted."""

    def __init__(
        self,
        what: str,
        cluster: Any = None,
        checkpoint: Any = None,
        step: Advance | None = None,
        say: Any = None,
    ) -> None:
        super().__init__()
        self.n_passes = 0
        if cluster is not None:
            from bagwise.compute.dask import on_cluster

            found = self.enter_context(on_cluster(cluster))
            if say is not None:
                say(f"{found.n_workers} workers; watch them at {found.dashboard_link}")
        if checkpoint is not None:
            journal = self.enter_context(going_on(checkpoint))
            if say is not None and journal.n_known:
                say(f"going on from {checkpoint}: {journal.n_known} passes are known")
        if step is not None:

            def report(name: str, k: int, n: int) -> None:
                self.n_passes += k == 1
                step(description=f"{what}: pass {self.n_passes} ({name.rpartition('.')[2]}), part {k} of {n}")

            self.enter_context(watched(report))


def fit_shards(
    shards: ShardedBags,
    model: str,
    params: Mapping[str, Any] | None,
    out: File | None,
    *,
    cluster: Any = None,
    checkpoint: File | None = None,
    step: Advance | None = None,
    say: Any = None,
) -> dict[str, Any]:
    """Fit a model by name to shards.

    With ``out``, what the passes came to is kept beside it in ``<out>.checkpoint`` (or ``checkpoint``) until
    the model is saved: the same call after a kill goes on from there.
    """
    fitted = make_model(model, params)
    shards, empty = filled_shards(shards, fitted)
    if checkpoint is None and out is not None:
        checkpoint = f"{out}.checkpoint"
    start = time.perf_counter()
    try:
        with _Running(f"fitting {model}", cluster, checkpoint, step, say) as running:
            fitted.fit(shards)
    except BagwiseError:
        raise
    except (ValueError, TypeError) as error:
        raise BagwiseError(str(error)) from error
    seconds = time.perf_counter() - start
    if out is not None:
        save(with_recipe(fitted, shards), out)
    if checkpoint is not None:
        shutil.rmtree(checkpoint, ignore_errors=True)
    return {
        "model": type(fitted).__name__,
        "params": fitted.get_params(deep=False),
        "data": shards.name or shards.place.folder,
        "n_bags": len(shards),
        "n_instances": shards.n_instances,
        "n_parts": shards.n_parts,
        "n_passes": running.n_passes or None,
        "labels": list(shards.label_names),
        "columns": None,
        "recipe": None if shards.recipe is None else describe(shards.recipe),
        "empty": empty,
        "seconds": seconds,
        "out": None if out is None else str(out),
    }


def filled_shards(shards: ShardedBags, model: Any) -> tuple[ShardedBags, list[str]]:
    """Bags that a model can take, and the names of those without instances where it cannot take them."""
    traits = getattr(last_estimator(model), "traits", None)
    takes = traits is not None and traits.empty_bags
    if takes or not any(part.n_empty for part in shards.manifest.parts):
        return shards, []
    filled = shards.sizes > 0
    if not filled.any():
        raise DataError("all bags are without instances", path=shards.place.folder)
    return shards[filled], [str(i) for i in shards.bag_ids[~filled]]


def predict_shards(
    model: Any,
    shards: ShardedBags,
    out: File,
    *,
    cluster: Any = None,
    step: Advance | None = None,
    say: Any = None,
) -> dict[str, Any]:
    """Predict the labels of bags in shards; a folder as ``out`` gets one table per part."""
    names = label_names(model)
    _, empty = filled_shards(shards, model)
    with _Running("predicting", cluster, None, step, say):
        params = (model, names, bool(empty))
        rows = _write(map_parts(_predictions, params, blocks_of_shards(shards)), out)
    return {"out": str(out), "rows": rows, "labels": list(names), "empty": empty}


def _predictions(params: Any, block: Block) -> pa.Table:
    model, names, some_empty = params
    bags = block.bags
    if not some_empty or (filled := bags.sizes > 0).all():
        return prediction_table(bags.bag_ids, *scores_and_labels(model, bags), names)
    scores = np.full((len(bags), len(names)), np.nan)  # a bag in which there is nothing to judge
    chosen = scores > 0
    if filled.any():
        scores[filled], chosen[filled] = scores_and_labels(model, bags[filled])
    return prediction_table(bags.bag_ids, scores, chosen, names)


def annotate_shards(
    model: Any,
    shards: ShardedBags,
    out: File,
    *,
    use_labels: bool = False,
    proba: bool = False,
    cluster: Any = None,
    step: Advance | None = None,
    say: Any = None,
) -> dict[str, Any]:
    """Find the label of every instance in shards; a folder as ``out`` gets one table per part."""
    names = label_names(model)
    if use_labels and not shards.has_labels:
        raise DataError(
            "holds no labels to choose among; leave out use_labels=True", path=shards.place.folder
        )
    shards, empty = filled_shards(shards, model)
    params = (model, names, shards.label_names, use_labels, proba)
    with _Running("annotating", cluster, None, step, say):
        rows = _write(map_parts(_annotations, params, blocks_of_shards(shards)), out)
    return {"out": str(out), "rows": rows, "labels": list(names), "empty": empty}


def _annotations(params: Any, block: Block) -> pa.Table:
    model, names, given, use_labels, proba = params
    known = None
    if use_labels:
        known, unknown, _ = align_labels(Dataset(block.bags, block.Y, given), names)
        if unknown:
            raise unknown_label(unknown[0], names)
    bags = block.bags
    if proba:
        labels, values = annotate_instances(model, bags, known, return_proba=True)
    else:
        labels, values = annotate_instances(model, bags, known), instance_scores(model, bags)
    title = "probability" if proba else "score"
    if isinstance(bags, Bags):
        return annotation_table(bags, labels, values, names, title)
    about = {"bag_ids": bags.bag_ids}
    return pa.concat_tables(
        annotation_table(part, labels[view], values[view], names, title, view=view, **about)
        for view, part in bags.views.items()
    )


def score_shards(
    model: Any, shards: ShardedBags, *, cluster: Any = None, step: Advance | None = None, say: Any = None
) -> dict[str, Any]:
    """Measure a model on shards: instances are read part by part, scores of bags are kept."""
    if not shards.has_labels:
        raise DataError("holds no labels to compare with", path=shards.place.folder)
    names = label_names(model)
    shards, empty = filled_shards(shards, model)
    with _Running("scoring", cluster, None, step, say):
        parts = list(map_parts(_scored, (model, names, shards.label_names), blocks_of_shards(shards)))
    Y, scores, chosen = (np.concatenate([part[k] for part in parts]) for k in range(3))
    unknown = [n for n, c in zip(shards.label_names, shards.label_counts) if n not in names and c]
    return {
        "model": type(last_estimator(model)).__name__,
        "data": shards.name or shards.place.folder,
        "n_bags": len(shards),
        "measures": dict(evaluate(Y, scores, chosen)),
        "not_learned": unknown,
        "not_in_data": [name for name in names if name not in shards.label_names],
        "empty": empty,
    }


def _scored(params: Any, block: Block) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    model, names, given = params
    Y = align_labels(Dataset(block.bags, block.Y, given), names)[0]
    return (Y, *scores_and_labels(model, block.bags))


# ---------------------------------------------------------------------- writing


def _write(tables: Iterable[pa.Table], out: File) -> int:
    """One table for all parts, or a folder with one per part; each file appears when it is whole."""
    if Path(out).suffix and not wants_shards(out):
        check_target(out)
        check_suffix(out)
        return write_tables(tables, out)
    place = Place(out)
    strange = [name for name in place.names() if not name.startswith(("part-", "."))]
    if strange:
        raise DataError(f"holds other files ({strange[0]}); give the name of a new folder", path=place.folder)
    return sum(_write_part(place, k, table) for k, table in enumerate(tables))


def _write_part(place: Place, k: int, table: pa.Table) -> int:
    def make(path: Path) -> None:
        pq.write_table(table, path)

    place.write(part_name(k), make)
    return table.num_rows
