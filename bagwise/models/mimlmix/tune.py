"""Settings of MIMLmix: parameters completed by the published values, and those chosen on held-out bags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.compute.calibration import best_offset
from bagwise.errors import DataError
from bagwise.metrics import average_precision
from bagwise.models.mimlmix.fit_em import Layout, train
from bagwise.models.mimlmix.kernels_topics import fit_topics, label_distributions, transposed
from bagwise.models.mimlmix.predict import infer_block, likelihoods

_SMOOTHING = {"kappa": ("counts", 300.0), "nu": ("gaussian", 10.0)}  # kind of view, value where none has it
GRID = {
    "kappa": (10.0, 100.0, 300.0, 1000.0),
    "nu": (3.0, 10.0, 30.0, 100.0),
    "alpha_train": (1.0, 5.0, 20.0),
    "eta": (0.0, 1.0, 3.0, 10.0, 30.0),
    "xi": (0.01, 0.03, 0.1, 0.3, 1.0),
}
START = {"kappa": 300.0, "nu": 10.0, "alpha_train": 5.0, "eta": 3.0, "xi": 0.1}
_BEYOND, _MOST = 10**0.5, 1e6  # kappa goes on by this factor while its largest value is the best one
_WORTHWHILE = 0.005  # what each of these steps must gain: strong smoothing blurs what labels look like
_RIVAL_ETAS = (0.0, 3.0, 30.0)
_INNER_ITERATIONS = 20  # the order of settings does not change after a few iterations of EM
_MAX_TRAIN, _MAX_HELD = 4000, 300


def given_settings(model: Any, n_views: int) -> dict[str, Any]:
    """Settings as given; in paper mode the published ones stand in for "auto"."""
    names = ("kappa", "nu", "alpha_train", "eta", "xi", "n_topics")
    given = {name: getattr(model, name) for name in names}
    if model.mode == "paper":
        several = n_views > 1
        eta = (0.3 if several else 0.2) if given["eta"] == "auto" else given["eta"]
        published = {
            "kappa": 0.1,
            "nu": 1.0,
            "alpha_train": eta if eta > 0 else 0.1,
            "eta": eta,
            "xi": 0.1,
            "n_topics": 200 if several else 50,
        }
        given = {name: published[name] if value == "auto" else value for name, value in given.items()}
    return given


def flat_settings(given: Mapping[str, Any], hypers: Mapping[str, dict]) -> dict[Any, Any]:
    """Settings with one entry per choice: ``(name, view)`` where views have a smoothing of their own.

    A number for all views stays one entry, as does the smoothing of a kind of which there is one view.

    Examples
    --------
    >>> hypers = {"a": {"kind": "counts"}, "b": {"kind": "counts"}}
    >>> flat = flat_settings({"kappa": {"a": 3.0}, "nu": "auto", "eta": 1.0}, hypers)
    >>> flat
    {('kappa', 'a'): 3.0, ('kappa', 'b'): 'auto', 'nu': 10.0, 'eta': 1.0}
    >>> nested_settings(flat)
    {'kappa': {'a': 3.0, 'b': 'auto'}, 'nu': 10.0, 'eta': 1.0}
    """
    flat: dict[Any, Any] = {}
    for name, value in given.items():
        if name not in _SMOOTHING:
            flat[name] = value
            continue
        kind, idle = _SMOOTHING[name]
        own = [v for v, h in hypers.items() if h["kind"] == kind]
        own_value = by_view(name, value, list(hypers))
        if not own:
            flat[name] = idle if own_value is not None or value == "auto" else value
        elif len(own) == 1:
            flat[name] = value if own_value is None else own_value[own[0]]
        elif own_value is None and value != "auto":
            flat[name] = value
        else:
            flat.update({(name, v): "auto" if own_value is None else own_value[v] for v in own})
    return flat


def by_view(name: str, value: Any, views: list[str], silent: Any = "auto") -> dict[str, Any] | None:
    """Entries of a sequence or mapping by view; None for a single value.

    ``silent`` is the entry of a view that a mapping does not name.
    """
    if isinstance(value, Mapping):
        unknown = [v for v in value if v not in views]
        if unknown:
            raise DataError(f"{name} names the views {unknown}; the views are {views}")
        return {v: value.get(v, silent) for v in views}
    if not isinstance(value, Iterable) or isinstance(value, str):
        return None
    values = list(value)
    if len(values) != len(views):
        raise DataError(f"{name} has {len(values)} entries for the {len(views)} views {views}")
    return dict(zip(views, values))


def nested_settings(flat: Mapping[Any, Any]) -> dict[str, Any]:
    """`flat_settings` undone: a dict of view to value where views have a smoothing of their own."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        if isinstance(key, str):
            nested[key] = value
        else:
            nested.setdefault(key[0], {})[key[1]] = value
    return nested


def fixed_settings(model: Any, views: list[str], seed: int) -> dict[str, Any]:
    """Settings that are never searched."""
    paper = model.mode == "paper"
    own_tau = by_view("tau", model.tau, views, 5.0)
    tau = np.array([model.tau if own_tau is None else own_tau[v] for v in views], dtype=np.float64)
    return {
        "tau": tau if model.weighted_views else None,
        "tied_start": 0 if paper else model.tied_start,
        "max_iter": model.max_iter,
        "max_inner": model.max_inner,
        "alpha_topic": model.alpha_topic,
        "max_rounds": model.max_rounds,
        "burn_in": 0 if paper else 3,
        "tol_predict": 1e-6,
        "sharp": model.inference == "vb",
        "fold_sharp": paper,  # sharp topics settle too early on what the first, flat round of labels suggests
        "fold_sweeps": 50 if paper else 10,
        "sampled": bool(model.sampling or paper),
        "seed": int(seed),
    }


def with_smoothing(hypers: Mapping[str, dict], settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Settings of the views with the strength of their priors, which may differ between views."""
    result = {}
    for v, hyper in hypers.items():
        name = "kappa" if hyper["kind"] == "counts" else "nu"
        value = settings[name]
        result[v] = {**hyper, name: float(value[v] if isinstance(value, Mapping) else value)}
    return result


# ---------------------------------------------------------------------- choosing


class Held:
    """Splits of the training bags on which settings are compared."""

    def __init__(
        self,
        views: Mapping[str, Bags],
        Y: np.ndarray,
        n_labels: int,
        hypers: Mapping[str, dict],
        fixed: dict[str, Any],
        rng: Any,
    ) -> None:
        self.views, self.Y, self.n_labels, self.hypers, self.fixed = views, Y, n_labels, hypers, fixed
        n_bags = len(Y)
        order = rng.permutation(n_bags)
        if n_bags < 600:  # small sets: three folds, since a single part would be too few bags
            parts = np.array_split(order, min(3, n_bags))
        else:
            parts = [order[: min(n_bags // 4, _MAX_HELD)]]
        self.splits = [(np.setdiff1d(order, part), part) for part in parts]
        self.splits = [(rng.permutation(rest)[:_MAX_TRAIN], part) for rest, part in self.splits]
        # a label without bags on the training side has no model there: it is no candidate
        self.present = [np.flatnonzero(Y[rest].any(axis=0)) for rest, _ in self.splits]
        self.seed = rng.randint(2**31 - 1)
        self.topics: list[tuple[np.ndarray, np.ndarray]] = []
        self.blocks: list[Any] = []
        self.trained_with: tuple = ()

    def fit_topics(self, n_topics: int, smoothing: float) -> None:
        """Topics of the training side of every split."""
        self.topics = []
        for (rest, _), present in zip(self.splits, self.present):
            rng = np.random.RandomState(self.seed)
            sets = self.Y[np.ix_(rest, present)]
            counts = fit_topics(sets, n_topics, rng, alpha=self.fixed["alpha_topic"])
            share = counts.sum(axis=1) + 1e-12
            beta = transposed(label_distributions(counts, smoothing))
            self.topics.append((beta, share / share.sum()))

    def scores(self, s: dict[Any, float]) -> list[np.ndarray]:
        """Gamma of the held-out bags of every split under settings ``s``, as `flat_settings` gives them."""
        key = tuple(v for k, v in s.items() if k not in ("eta", "xi"))
        if key != self.trained_with:
            hypers = with_smoothing(self.hypers, nested_settings(s))
            self.blocks = [self._block(k, hypers, s["alpha_train"]) for k in range(len(self.splits))]
            self.trained_with = key
        result = []
        settings = {**self.fixed, "eta": s["eta"], "xi": s["xi"]}
        for k, (_, held) in enumerate(self.splits):
            beta, share = self.topics[k]
            gamma = np.zeros((len(held), self.Y.shape[1]))
            gamma[:, self.present[k]] = infer_block(self.blocks[k], beta, share, settings)[0]
            result.append(gamma)
        return result

    def _block(self, k: int, hypers: dict[str, dict], alpha: float) -> Any:
        """Train on one side of a split; likelihoods of the other side, which all priors share."""
        (rest, held), present, fixed = self.splits[k], self.present[k], self.fixed
        part = {v: bags[rest] for v, bags in self.views.items()}
        model = train(
            Layout(part, self.Y[np.ix_(rest, present)], hypers),
            alpha=alpha,
            tau=fixed["tau"],
            max_iter=min(fixed["max_iter"], _INNER_ITERATIONS),
            tol=1e-5,
            tied_start=fixed["tied_start"],
            max_inner=fixed["max_inner"],
        )
        part = {v: bags[held] for v, bags in self.views.items()}
        return likelihoods(part, dict(zip(self.views, model.views)), model.weights, len(present))

    def quality(self, s: dict[Any, float]) -> float:
        """Average precision of the held-out bags."""
        values = []
        for (_, held), gamma in zip(self.splits, self.scores(s)):
            values.append(average_precision(self.Y[held][:, : self.n_labels], gamma[:, : self.n_labels]))
        return float(np.nanmean(values)) if np.isfinite(values).any() else 0.0


def choose_settings(held: Held, given: dict[Any, Any]) -> tuple[dict[Any, float], list]:
    """Search one setting after the other, each by the average precision of the whole model.

    Every view has its own smoothing: views differ in how many words stand behind a label by orders of
    magnitude. Later passes look again at what the first choices were made without.

    ``given`` holds, for each setting as `flat_settings` gives them, a number, or "auto" where it is to be
    chosen on the bags held out, whose topics are fitted. Comes with what was tried and its quality there.
    """
    current = {k: START[_name(k)] if v == "auto" else float(v) for k, v in given.items()}
    free = [k for k, v in given.items() if v == "auto"]
    tried: list[tuple[dict[str, Any], float]] = []
    known: dict[tuple, float] = {}

    def value(s: dict[Any, float]) -> float:
        key = tuple(s.values())
        if key not in known:
            known[key] = held.quality(s)
            tried.append((nested_settings(s), known[key]))
        return known[key]

    def best(now: dict[Any, float], key: Any, options: tuple[float, ...], etas: tuple[float, ...] = ()):
        priors: list[dict[str, float]] = [{}, *({"eta": eta} for eta in etas)]
        new = [{**now, key: option, **prior} for option in options for prior in priors]
        return max([now, *new], key=value)  # the present value wins a tie

    smoothing = [k for k in free if _name(k) in ("kappa", "nu")]
    again = smoothing if len(smoothing) > 1 else []
    for place, key in enumerate(["xi", "eta", "xi", *smoothing, *again, "alpha_train", "eta", "xi", "eta"]):
        if key not in free:
            continue
        # Weak smoothing goes with strong topics and the other way round: both are looked at together once.
        together = _name(key) == "kappa" and place < 3 + len(smoothing) and "eta" in free
        etas = _RIVAL_ETAS if together else ()
        current = best(current, key, (current[key], *GRID[_name(key)]), etas)
        while _name(key) == "kappa" and GRID["kappa"][-1] <= current[key] < _MOST:
            further = best(current, key, (float(f"{current[key] * _BEYOND:.1g}"),), etas)
            if value(further) < value(current) + _WORTHWHILE:
                break
            current = further
    return current, tried


def _name(key: Any) -> str:
    return key if isinstance(key, str) else key[0]


def held_out_threshold(held: Held, s: dict[Any, float]) -> float:
    """`best_threshold` of the held-out bags."""
    truth = np.concatenate([held.Y[part][:, : held.n_labels].ravel() for _, part in held.splits])
    return best_threshold(truth, np.concatenate([g[:, : held.n_labels].ravel() for g in held.scores(s)]))


def best_threshold(truth: np.ndarray, scores: np.ndarray) -> float:
    """Threshold on scores with the fewest errors.

    Examples
    --------
    >>> best_threshold(np.array([1, 0, 1, 0]), np.array([4.0, 1.0, 3.0, 2.0]))
    2.5
    """
    return best_offset(scores, truth, near=float(scores.max()), apart=False)  # the fewest labels among equals
