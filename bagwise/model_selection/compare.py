"""Which model is best on one's own data: cross-validation of several, and whether the lead is real."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bagwise.bags import Bags, MultiViewBags, instance_rows
from bagwise.bags.labels import label_matrix
from bagwise.base import is_list_of_bags
from bagwise.compute.threads import stream
from bagwise.errors import DataError, in_one_line
from bagwise.inspection import annotate, last_estimator, scores_and_labels
from bagwise.metrics import evaluate, instance_accuracy
from bagwise.model_selection.comparison import Comparison, Fit
from bagwise.models import MIMLDummy, PooledClassifier
from bagwise.models._shared.held_out import MultilabelKFold
from bagwise.registry import get_estimator
from bagwise.utils.progress import progress
from bagwise.utils.store import Entries, content_hash

DEFAULT_MODELS = ("BagClassifier", "ORedLogisticRegression", "MIMLFast", "SetKernelSVM")
MANY_BAGS = 5000  # beyond, methods that need every pair of bags are not among the defaults


def compare(
    models: Any,
    X: Any,
    Y: Any,
    *,
    instance_Y: Any = None,
    cv: int = 5,
    repeats: int = 2,
    measure: str | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    folder: str | PathLike[str] | None = None,
    step: Callable[..., None] | None = None,
) -> Comparison:
    """Cross-validate several models on the same folds and say which to use.

    The dummy, pooled statistics with a forest, and pooled means with logistic regression always take part: a
    method that does not beat them is not worth its time.

    Parameters
    ----------
    models : mapping of str to estimator, sequence of names or estimators, or None
        What to compare, each at the settings given; None stands for a choice that suits the data.
    X : Bags, MultiViewBags or list of 2-D arrays
        The bags.
    Y : labels as in ``fit``
        Their labels: a 0/1 matrix, a DataFrame, lists of names, or one class per bag.
    instance_Y : int array of shape (n_instances,), optional
        Label of each instance, -1 where unknown; they are used to measure, never to learn.
    cv, repeats : int
        Folds, and how often bags are dealt into folds anew.
    measure : str, optional
        What decides; by default average precision for several labels, the area under the ROC curve for one
        label or two classes, accuracy for several classes.
    random_state : int, default=0
        Seed of the folds, and of models that have one.
    n_jobs : int, optional
        Fits at the same time.
    folder : path, optional
        Where finished fits are kept, so that a stopped comparison goes on; nothing is kept without it.
    step : callable, optional
        Called as ``step(n_new, text, n_all)`` after every fit, to move a progress bar of one's own.

    Returns
    -------
    Comparison
        Prints as a table; has `table`, `differences`, `sentence`, `plot` and `to_frame`.

    Notes
    -----
    The interval of a difference is that of the corrected resampled t-test [1]_: folds share training bags, so
    the variance of the mean is (1/J + n_test/n_train) s^2 for J fits instead of s^2 / J. The lead of the best
    model is called real if the interval of its difference to the model in question, widened for the number of
    models (Bonferroni), does not contain zero.

    References
    ----------
    .. [1] C. Nadeau, Y. Bengio: Inference for the generalization error. Machine Learning 52, 2003.

    Examples
    --------
    >>> from bagwise import load_dataset
    >>> from bagwise.models import ORedLogisticRegression
    >>> data = load_dataset("digits", n_bags=80)
    >>> result = compare([ORedLogisticRegression()], data.bags, data.Y, cv=2, repeats=1)
    >>> result.best
    'ORedLogisticRegression'
    """
    if cv < 2 or repeats < 1:
        raise ValueError(f"cv must be at least 2 and repeats at least 1, got {cv} and {repeats}")
    bags = Bags.from_list(X) if is_list_of_bags(X) else X
    if not isinstance(bags, (Bags, MultiViewBags)):
        raise DataError("compare takes bags: a Bags, MultiViewBags or a list of 2-D arrays")
    targets = _targets(Y, bags)
    chosen = {**_contestants(models, bags), **yardsticks(bags)}
    # one label is a question of two answers
    n_answers = targets.shape[1] + 1 if targets.ndim == 2 else len(np.unique(targets))
    if not measure:
        several = "average_precision" if targets.ndim == 2 else "accuracy"
        measure = "roc_auc" if n_answers == 2 else several
    folds = []
    for repeat in range(repeats):
        how: dict[str, Any] = {"shuffle": True, "random_state": random_state + repeat}
        splitter = MultilabelKFold(cv, **how) if targets.ndim == 2 else StratifiedKFold(cv, **how)
        parts = enumerate(splitter.split(bags, targets))
        folds += [(repeat, fold, train, test) for fold, (train, test) in parts]
    for model in chosen.values():
        for name, value in model.get_params(deep=True).items():
            if name.split("__")[-1] == "random_state" and value is None:
                model.set_params(**{name: random_state})
    kept = _KeptFits(folder, (cv, random_state, _arrays(bags), targets, instance_Y))
    tasks = [(name, model, *fold) for name, model in chosen.items() for fold in folds]
    done = {(t[0], t[2], t[3]): found for t in tasks if (found := kept.get(*t[:4])) is not None}
    pending = [t for t in tasks if (t[0], t[2], t[3]) not in done]
    with progress("comparing", len(tasks), enabled=step is None) as bar:

        def show(n_new: int, text: str) -> None:
            bar(n_new, text) if step is None else step(n_new, text, len(tasks))

        show(len(done), f"{len(done)} of {len(tasks)} fits were kept" if done else "comparing")
        arguments = ((*task, bags, targets, instance_Y) for task in pending)
        for key, fit in stream(_fit_one, arguments, n_jobs=n_jobs):
            kept.put(key, chosen[key[0]], fit)
            done[key] = fit
            show(1, f"{len(done)} of {len(tasks)} fits")
    fits = tuple(done[t[0], t[2], t[3]] for t in tasks)
    return Comparison(measure, tuple(chosen), fits, 1.0 / (cv - 1), tuple(yardsticks(bags)))


def yardsticks(bags: Any) -> dict[str, Any]:
    """Simple models that stand in every comparison."""
    views = bags.views.values() if isinstance(bags, MultiViewBags) else [bags]
    centred = not any(view.is_sparse for view in views)
    scaled = make_pipeline(StandardScaler(with_mean=centred), LogisticRegression(max_iter=1000))
    return {
        "pooled forest": PooledClassifier(),
        "pooled mean + logistic": PooledClassifier(scaled, statistics=("mean",)),
        "dummy": MIMLDummy(),
    }


def _contestants(models: Any, bags: Any) -> dict[str, Any]:
    if models is None:
        names = DEFAULT_MODELS if len(bags) <= MANY_BAGS else ("BagClassifier", "MIMLFast")
        if isinstance(bags, MultiViewBags):
            names = ("BagClassifier", "MIMLMix")
        models = names
    if isinstance(models, str):
        models = [models]
    if isinstance(models, Mapping):
        return {name: clone(model) for name, model in models.items()}
    found: dict[str, Any] = {}
    for given in models:
        model = get_estimator(given)() if isinstance(given, str) else clone(given)
        title = type(last_estimator(model)).__name__
        number = sum(name == title or name.startswith(f"{title} ") for name in found)
        found[f"{title} {number + 1}" if number else title] = model
    return found


def _targets(Y: Any, bags: Any) -> np.ndarray:
    if Y is None:
        raise DataError("models are compared on labelled bags; these have no labels")
    if sparse.issparse(Y):
        Y = Y.toarray()
    first: Any = None if hasattr(Y, "columns") else Y.iloc[0] if hasattr(Y, "iloc") else Y[0]
    if not hasattr(Y, "columns") and np.ndim(first) == 0:
        y = np.asarray(Y)
        if y.ndim == 1:
            return y
    return label_matrix(Y, bag_ids=bags.bag_ids)[0]


def _fit_one(
    name: str,
    model: Any,
    repeat: int,
    fold: int,
    train: np.ndarray,
    test: np.ndarray,
    bags: Any,
    targets: np.ndarray,
    instance_Y: np.ndarray | None,
) -> tuple[tuple[str, int, int], Fit]:
    """One fit, measured; what goes wrong is kept as the reason, so that the other models still finish."""
    fresh = clone(model)
    clock, cpu = time.perf_counter(), time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fresh.fit(bags[train], targets[train])
            seconds, cpu_seconds = time.perf_counter() - clock, time.process_time() - cpu
            measures = _measure(fresh, bags, targets, instance_Y, train, test)
    except (ValueError, TypeError, MemoryError, np.linalg.LinAlgError) as error:
        seconds, cpu_seconds = time.perf_counter() - clock, time.process_time() - cpu
        reason = in_one_line(error, 500, named=True)
        return (name, repeat, fold), Fit(name, repeat, fold, {}, seconds, cpu_seconds, reason)
    return (name, repeat, fold), Fit(name, repeat, fold, measures, seconds, cpu_seconds, "")


def _measure(
    model: Any, bags: Any, targets: np.ndarray, instance_Y: Any, train: np.ndarray, test: np.ndarray
) -> dict[str, float]:
    held_out, truth = bags[test], targets[test]
    if targets.ndim == 1:
        scores, _ = scores_and_labels(model, held_out)
        result = {"accuracy": float(accuracy_score(truth, model.predict(held_out)))}
        if scores.shape[1] == 1 and len(np.unique(truth)) == 2:
            result["roc_auc"] = float(roc_auc_score(truth == np.unique(targets)[1], scores[:, 0]))
        return result
    scores, chosen = scores_and_labels(model, held_out)
    result = dict(evaluate(truth, scores, chosen, train_Y=targets[train]))
    if instance_Y is not None and isinstance(bags, Bags):
        known = np.asarray(instance_Y)[instance_rows(bags.offsets, test)[0]]
        result["instance_accuracy"] = instance_accuracy(known, annotate(model, held_out))
        given = annotate(model, held_out, truth)
        result["instance_accuracy_given_labels"] = instance_accuracy(known, given)
    return {key: float(value) for key, value in result.items()}


# ----------------------------------------------------------------------
# Finished fits in a folder, so that a comparison that was stopped goes on where it was


class _KeptFits:
    """Fits by the content of everything that decides them; without a folder nothing is kept."""

    def __init__(self, folder: str | PathLike[str] | None, data: Any) -> None:
        self._entries = None if folder is None else Entries(folder, ".json")
        self._data = "" if folder is None else content_hash(data)

    def _key(self, name: str, model: Any, repeat: int, fold: int) -> str:
        # the printed form of an estimator shows every parameter that is not a default
        return content_hash((self._data, name, repr(model), repeat, fold))[:24]

    def get(self, name: str, model: Any, repeat: int, fold: int) -> Fit | None:
        """A fit that was kept; one that failed, or a damaged file, counts as not there."""
        found = None if self._entries is None else self._entries.get(self._key(name, model, repeat, fold))
        return None if found is None or found["error"] else Fit(**found)

    def put(self, key: tuple[str, int, int], model: Any, fit: Fit) -> None:
        if self._entries is not None:
            self._entries.put(self._key(key[0], model, *key[1:]), vars(fit))


def _arrays(bags: Any) -> list[Any]:
    """All numbers of bags."""
    views = bags.views.values() if isinstance(bags, MultiViewBags) else [bags]
    return [
        (view.offsets, *((X.data, X.indices, X.indptr) if sparse.issparse(X := view.X) else (X,)))
        for view in views
    ]
