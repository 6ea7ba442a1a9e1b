"""The overview: counts of labels, quality and calibration where truth is known, effect of thresholds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.bags.dataset import UNKNOWN
from bagwise.errors import DataError
from bagwise.inspection import last_estimator
from bagwise.look.answers import number_or_none
from bagwise.look.exporting import export_kinds
from bagwise.media.places import medium_of

if TYPE_CHECKING:
    from bagwise.look.session import Session


_BINS = 10
_THRESHOLDS = 101


def overview(session: Session) -> dict[str, Any]:
    """See `Session.overview`."""
    truth, answers = session.truth, session.answers
    found: dict[str, Any] = {
        "data": session.corrections.data,
        "description": session.dataset.description,
        "n_bags": len(session.ids),
        "n_instances": int(session.bags.n_instances),
        "n_features": int(session.bags.n_features),
        "medium": medium_of(session.bags.instance_info),
        "names": session.names,
        "labels": _labels(session, truth),
        "n_corrections": len(session.corrections.standing()),
        "n_corrected": int((session.corrected > 0).sum()),
        "n_seen": int(session.seen.sum()),
        "damaged_lines": session.corrections.damaged,
        "corrections_file": session.corrections.path.name,
        "has_truth": session.dataset.has_labels,
        "left_out": session.left_out[:100],
        "n_left_out": len(session.left_out),
        "exports": export_kinds(session),
        "model": None,
        "version": session.version,
    }
    if answers is not None:
        inner = last_estimator(answers.model)
        found["model"] = {
            "name": type(inner).__name__,
            "file": Path(str(session.source["model"])).name,
            "probabilities": answers.probabilities,
            "n_labels": len(answers.names),
            "scored": answers.done,
            "failed": answers.failed,
            "known_instances": bool(getattr(getattr(inner, "traits", None), "known_instances", False)),
        }
        found["calibration"] = reliability(session, truth)
    return found


def _labels(session: Session, truth: np.ndarray) -> list[dict[str, Any]]:
    answers = session.answers
    done = 0 if answers is None else answers.done
    held = truth == 1
    counts = held.sum(axis=0)
    rows = []
    for k, name in enumerate(session.names):
        row: dict[str, Any] = {"label": k, "name": name, "known": int(counts[k])}
        if answers is not None and k < len(answers.names):
            chosen, y = answers.chosen[:done, k], truth[:done, k]
            row["predicted"] = int(chosen.sum())
            judged = y != UNKNOWN
            if judged.any():
                row |= _quality(y[judged] == 1, chosen[judged])
        rows.append(row)
    return rows


def _quality(y: np.ndarray, chosen: np.ndarray) -> dict[str, Any]:
    hits = int((y & chosen).sum())
    precision = hits / chosen.sum() if chosen.any() else None
    recall = hits / y.sum() if y.any() else None
    f1 = 2 * hits / (chosen.sum() + y.sum()) if chosen.any() or y.any() else None
    values = {"precision": precision, "recall": recall, "f1": f1}
    return {name: None if v is None else number_or_none(v) for name, v in values.items()} | {
        "judged": len(y),
        "wrong": int((y != chosen).sum()),
    }


def reliability(session: Session, truth: np.ndarray) -> dict[str, Any] | None:
    """Mean value and share that is true, per tenth; None where no truth is known."""
    answers = session.answers
    assert answers is not None
    y = truth[: answers.done, : len(answers.names)]
    judged = y != UNKNOWN
    if not answers.probabilities or not judged.any():
        return None
    p = np.clip(answers.values[: answers.done][judged].astype(np.float64), 0, 1)
    t = (y == 1)[judged]
    bins = np.minimum((p * _BINS).astype(np.int64), _BINS - 1)
    counts = np.bincount(bins, minlength=_BINS)
    mean = np.bincount(bins, p, minlength=_BINS) / np.maximum(counts, 1)
    share = np.bincount(bins, t, minlength=_BINS) / np.maximum(counts, 1)
    rows = [
        {"count": int(n), "value": number_or_none(m), "share": number_or_none(s)}
        for n, m, s in zip(counts, mean, share)
    ]
    error = float(np.abs(counts * (mean - share)).sum() / counts.sum())
    return {"bins": rows, "error": number_or_none(error)}


def quality_curve(session: Session, label: int | None) -> dict[str, Any]:
    """See `Session.curve`: at each of 101 thresholds, a bag has the label if its value is at least that."""
    answers = session.answers
    if label is None or answers is None or label >= len(answers.names):
        raise DataError("only a label of the model has a threshold")
    values = answers.values[: answers.done, label].astype(np.float64)
    y = session.truth[: answers.done, label]
    thresholds = np.linspace(0, 1, _THRESHOLDS)
    ordered = np.sort(values)
    predicted = len(values) - np.searchsorted(ordered, thresholds, side="left")
    found: dict[str, Any] = {"label": label, "predicted": predicted.tolist(), "n_bags": len(values)}
    judged = y != UNKNOWN
    found["judged"] = int(judged.sum())
    if judged.any():
        true = np.sort(values[y == 1])
        hits = len(true) - np.searchsorted(true, thresholds, side="left")
        among = int(judged.sum()) - np.searchsorted(np.sort(values[judged]), thresholds, side="left")
        found["precision"] = [number_or_none(h / a) if a else None for h, a in zip(hits, among)]
        found["recall"] = [number_or_none(h / len(true)) if len(true) else None for h in hits]
    return found
