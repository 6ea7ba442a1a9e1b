"""Parameters of MIMLmix: checked, completed by the published values, and turned into settings of views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bagwise.errors import DataError

_SMOOTHING = {"kappa": ("counts", 300.0), "nu": ("gaussian", 10.0)}  # kind of view, value where none has it


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


def distribution_of(learned: dict[str, Any], component: int) -> dict[str, np.ndarray]:
    """Distribution of one component in the units of the data; constant features have no variance."""
    if learned["kind"] == "counts":
        parts = learned["S"]
        words = np.repeat(np.arange(parts["shape"][0]), np.diff(parts["indptr"]))
        own = parts["indices"] == component
        S = np.bincount(words[own], parts["data"][own], minlength=parts["shape"][0])
        kappa = learned["kappa"]
        return {"words": (S + kappa * learned["background"]) / (learned["totals"][component] + kappa)}
    kept = learned["scale"] > 0
    W = learned["whiten"][component % len(learned["whiten"])]
    if learned["covariance"] == "diag":
        covariance = np.diag(1.0 / W[0] ** 2)
    else:  # stored: the transposed inverse of the Cholesky factor
        factor = np.linalg.inv(W.T)
        covariance = factor @ factor.T
    mean, whole = learned["location"].copy(), np.zeros((len(kept), len(kept)))
    mean[kept] += learned["scale"][kept] * learned["mean"][component]
    whole[np.ix_(kept, kept)] = covariance
    return {"mean": mean, "covariance": whole * np.outer(learned["scale"], learned["scale"])}
