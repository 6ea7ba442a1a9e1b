"""One task: load, split, fit, predict, measure. A pure function of the task, apart from the clock."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, roc_auc_score

from bagwise import __version__, inspection
from bagwise.bags.dataset import UNKNOWN
from bagwise.compute.memo import shared_pairs
from bagwise.compute.threads import libraries
from bagwise.inspection import unwrap
from bagwise.metrics import calibration_error, evaluate, hamming_loss, instance_accuracy, one_error
from bagwise.registry import get_estimator
from papers.methods import fit_model
from papers.problems import Problem, load_problem
from papers.tasks import NO_METHOD, Task, split_bags

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


def execute(task: Task) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run a task; return its row and its predictions. What goes wrong becomes part of the row."""
    row: dict[str, Any] = {
        "hash": task.digest,
        "dataset": task.dataset,
        "method": task.method,
        "parameters": task.setting,
        "data": json.dumps(task.data, sort_keys=True),
        "split": json.dumps(task.split, sort_keys=True),
        "repeat": task.key,
        "chosen": "",
        "measures": {},
        "fit_seconds": None,
        "fit_cpu_seconds": None,
        "predict_seconds": None,
        "peak_mb": None,
        "error": "",
    }
    predictions: dict[str, np.ndarray] = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # limits on iterations are part of the protocols
            predictions = _run(task, row)
    except Exception as error:  # any fault of one method must not stop the others
        place = traceback.extract_tb(error.__traceback__)[-1]
        row["error"] = f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
    return row, predictions


def _run(task: Task, row: dict[str, Any]) -> dict[str, np.ndarray]:
    problem = load_problem(task.data, task.repeat["seed"])
    if task.method == NO_METHOD:
        row["measures"] = measure_data(problem)
        return {}
    train, test = split_bags(task.split, problem.y, task.repeat)
    spec = task.model
    traits = get_estimator(spec["estimator"]).traits
    shown = problem.labelled if traits.instance_labels else problem.bags
    bags, seed = shown[train], task.repeat["seed"] * 100 + task.repeat.get("fold", 0)
    _warm_up(spec, bags, problem.y[train], seed)
    with _peak_memory(row), _known_pairs(task):
        start, cpu = time.perf_counter(), time.process_time()
        model, chosen = fit_model(spec, bags, problem.y[train], seed)
        # with pairs of bags from other fits, the time would not be that of one
        row["fit_seconds"] = None if task.split.get("share") else time.perf_counter() - start
        row["fit_cpu_seconds"] = time.process_time() - cpu
    row["chosen"] = json.dumps(chosen, sort_keys=True, default=float)
    new = problem.bags[test]
    start = time.perf_counter()
    with _known_pairs(task):
        by = model.predict_proba if spec.get("scores") == "probability" else model.decision_function
        scores = by(new)
        row["predict_seconds"] = None if task.split.get("share") else time.perf_counter() - start
        found = {"test": test, "scores": np.asarray(scores), "predicted": np.asarray(model.predict(new))}
    if problem.has_instance_labels and problem.is_matrix and traits.instances == "model":
        found["instance_scores"] = inspection.instance_scores(model, new)
        found["annotation"] = inspection.annotate(model, new)
        if task.split["kind"] == "all" or task.split.get("given_labels"):
            found["annotation_given_labels"] = inspection.annotate(model, new, problem.y[test])
    row["measures"] = measure_predictions(problem, train, test, found)
    if problem.is_matrix and hasattr(model, "predict_proba"):
        error = calibration_error(problem.y[test], model.predict_proba(new))
        row["measures"]["calibration_error"] = error
    last = unwrap(model, new)[0] if spec.get("record") else model
    for name in spec.get("record", ()):
        row["measures"][name.removesuffix("_")] = float(getattr(last, name))
    return found


_pairs: dict[str, dict[Any, Any]] = {}


def _known_pairs(task: Task) -> contextlib.AbstractContextManager[None]:
    """Kernels between bags that earlier fits on the same data have computed, if the protocol shares them."""
    if not task.split.get("share"):
        return contextlib.nullcontext()
    if task.data_key not in _pairs:
        _pairs.clear()  # one data set at a time
        _pairs[task.data_key] = {}
    return shared_pairs(_pairs[task.data_key])


_warm: set[str] = set()


def _warm_up(spec: Any, bags: Any, y: np.ndarray, seed: int) -> None:
    """Fit a few bags once per process and estimator, so that no clock counts the compilation of kernels."""
    name = spec["estimator"]
    if name in _warm:
        return
    _warm.add(name)
    with contextlib.suppress(Exception):  # some cannot learn from so few bags; then the first fit is slower
        few = np.sort(np.random.default_rng(0).permutation(len(y))[:40])
        plain = {key: value for key, value in spec.items() if key != "search"}
        model, _ = fit_model(plain, bags[few], y[few], seed)
        model.decision_function(bags[few])


def environment() -> dict[str, str]:
    """Versions and machine that a row was made with."""
    import numba
    import scipy
    import sklearn

    versions = {"bagwise": __version__, "python": platform.python_version(), "numpy": np.__version__}
    versions |= {"scipy": scipy.__version__, "scikit-learn": sklearn.__version__, "numba": numba.__version__}
    versions["blas"] = _blas()
    return versions | {"machine": f"{platform.system()}, {os.cpu_count()} cores, {_processor()}"}


def _blas() -> str:
    """Which loops multiply matrices: those of another processor round otherwise."""
    found = (one for one in libraries().info() if one["user_api"] == "blas")
    # not all libraries tell what they run on
    names = (" for ".join(filter(None, (one["internal_api"], one.get("architecture")))) for one in found)
    return " and ".join(dict.fromkeys(names))


def _processor() -> str:
    """Name of the processor, where the system tells it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@contextlib.contextmanager
def _peak_memory(row: dict[str, Any]) -> Iterator[None]:
    """Put the peak growth of resident memory inside the block into the row, where the system tells it."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # else freed memory of earlier fits would hide what this one takes
        _RESET.write_text("5")  # Linux: the peak begins anew at what is resident now
        before = _resident("VmRSS")
    except (OSError, ValueError, AttributeError):
        yield
        return
    yield
    row["peak_mb"] = max(0.0, (_resident("VmHWM") - before) / 1024.0)


def _resident(name: str) -> float:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return float(line.split()[1])
    raise ValueError(name)


# ----------------------------------------------------------------------
# What is measured of predictions and of data sets, and how the papers' tables express it


# Names in published tables -> (name here, how the value is expressed there).
_PUBLISHED: dict[str, tuple[str, Callable[[float], float]]] = {
    "auc": ("roc_auc", lambda v: v),
    "coverage_raw": ("coverage", lambda v: v),
    "coverage_norm": ("normalised_coverage", lambda v: v),
    "one_minus_average_precision": ("average_precision", lambda v: 1.0 - v),
    "instance_accuracy_inductive": ("instance_accuracy", lambda v: v),
    "instance_accuracy_transductive": ("instance_accuracy_given_labels", lambda v: v),
    "train_time_s": ("fit_seconds", lambda v: v),
    "test_time_s": ("predict_seconds", lambda v: v),
    "train_time_min": ("fit_seconds", lambda v: v / 60.0),
    "test_time_min": ("predict_seconds", lambda v: v / 60.0),
}


def express(published: str, row: Mapping[str, float], named: Mapping[str, str] | None = None) -> float | None:
    """Value of a published measure in our row of measures; None where the row lacks it.

    Parameters
    ----------
    published : str
        Name of the measure in the published table; the ending ``_percent`` stands for a factor of 100.
    row : mapping of str to float
        Our measures.
    named : mapping of str to str, optional
        Measures that stand for published ones in one table only.

    Examples
    --------
    >>> express("hamming_loss_percent", {"hamming_loss": 0.125})
    12.5
    >>> express("one_minus_average_precision", {"average_precision": 0.75})
    0.25
    """
    stem = published.removesuffix("_percent")
    name, change = _PUBLISHED.get(stem, (stem, lambda v: v))
    value = row.get((named or {}).get(published, name))
    if value is None:
        return None
    return change(value) * (100.0 if published.endswith("_percent") else 1.0)


def measure_predictions(
    problem: Problem, train: np.ndarray, test: np.ndarray, found: Mapping[str, Any]
) -> dict:
    """All measures that predictions allow.

    Parameters
    ----------
    problem : Problem
        Bags and targets.
    train, test : int arrays
        Bags of the two parts.
    found : mapping
        Predictions of the test bags: ``scores``, ``predicted`` and, where instances have known labels,
        ``annotation`` (labels of instances), ``annotation_given_labels`` and ``instance_scores``.
    """
    y = problem.y[test]
    if not problem.is_matrix:
        result = {"accuracy": float(accuracy_score(y, found["predicted"]))}
        if found["scores"].ndim == 1 and len(np.unique(y)) == 2:
            result["roc_auc"] = float(roc_auc_score(y, found["scores"]))
        return result
    more: dict[str, Any] = {}
    if "annotation" in found:
        truth = problem.labelled[test].instance_info["label"]
        more = {
            "instance_Y": truth,
            "instance_predictions": found["annotation"],
            "instance_scores": found["instance_scores"],
            "offsets": problem.bags[test].offsets,
        }
    result = dict(evaluate(y, found["scores"], found["predicted"], train_Y=problem.y[train], **more))
    result["hamming_loss_top"] = hamming_loss(y, _top_labels(found["scores"], problem.y[train]))
    result["one_error_ties_wrong"] = one_error(y, found["scores"], ties="sklearn")
    if "annotation_given_labels" in found:
        result["instance_accuracy_given_labels"] = instance_accuracy(truth, found["annotation_given_labels"])
        result["n_annotated"] = int((np.asarray(truth) != UNKNOWN).sum())
    return {name: float(value) for name, value in result.items()}


def measure_data(problem: Problem) -> dict[str, float]:
    """Counts of a data set as the papers print them, and the cost of exact label posteriors on it."""
    bags, Y = problem.bags, problem.y if problem.is_matrix else np.eye(2, dtype=int)[problem.y]
    sizes, labels = np.diff(bags.offsets).astype(np.float64), Y.sum(axis=1).astype(np.float64)
    cost = sizes * labels * 2.0**labels
    cheapest = np.sort(cost)[: int(0.8 * len(cost))]
    occurring = int((Y.sum(axis=0) > 0).sum())
    softmax = float(sizes.sum() * occurring * bags.n_features)
    return {
        "n_bags": float(len(bags)),
        "n_instances": float(bags.n_instances),
        "n_features": float(bags.n_features),
        "n_labels": float(Y.shape[1]),
        "n_classes": float(occurring),
        "labels_per_bag": float(labels.mean()),
        "classes_per_bag": float(labels.mean()),
        "instances_per_bag": float(sizes.mean()),
        "min_instances_per_bag": float(sizes.min()),
        "max_instances_per_bag": float(sizes.max()),
        "sum_Y2Y_n2_forward": float((cost * sizes).sum()),
        "sum_Y2Y_n_fast": float(cost.sum()),
        "sum_nCd_forward": softmax,
        "sum_nCd_fast": softmax,
        "complexity_ratio_all_vs_80pct_bags": float(cost.sum() / cheapest.sum()),
    }


def _top_labels(scores: np.ndarray, train_Y: np.ndarray) -> np.ndarray:
    """As many labels of the highest scores as training bags have on average, at least one."""
    count = max(1, round(float(train_Y.sum(axis=1).mean())))
    order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    chosen = np.zeros(scores.shape, dtype=np.int8)
    np.put_along_axis(chosen, order, 1, axis=1)
    return chosen
