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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bagwise import inspection
from bagwise.bench.measures import measure_data, measure_predictions
from bagwise.bench.methods import fit_model
from bagwise.bench.problems import load_problem
from bagwise.bench.splits import split_bags
from bagwise.bench.tasks import NO_METHOD, Task
from bagwise.compute.memo import shared_pairs
from bagwise.compute.threads import libraries
from bagwise.inspection import unwrap
from bagwise.metrics import calibration_error
from bagwise.registry import get_estimator
from bagwise.utils.version import __version__

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
