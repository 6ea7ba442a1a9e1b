"""What "auto" stands for: penalty and background that predict held-out bags best, and the decision with them.

Three things differ from set to set, and the likelihood of the training bags does not tell them: how strongly
text should be penalised, what bags without any label say, and how probable a label must be before it is
predicted. Models of two thirds of the bags score the rest; the setting of least calibrated log loss is taken.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from bagwise.bags import instance_rows
from bagwise.errors import DataError
from bagwise.models._shared.decisions import Calibration, calibrate, held_out_scores, log_loss
from bagwise.models._shared.scaling import is_text

__all__ = ["Setting", "choose", "settings"]

# Penalties tried on text. Rows of a logistic regression at its usual C = 1 on tf-idf of unit length have the
# penalty 10 here, where words have mean square 1 and a sentence some ten of them.
TEXT_PENALTIES = (1.0, 3.0, 10.0)


class Setting(NamedTuple):
    """A penalty, and where instances without a label may be: "anywhere", in "empty" bags only, or False."""

    alpha: float
    background: Any


def settings(model: Any, bags: Any, Y: np.ndarray) -> list[Setting]:
    """Settings among which `choose` has the choice; the first is taken where bags are too few to tell."""
    penalties = [model.alpha]
    if model.alpha == "auto":
        text = model.kernel is None and is_text(bags.X)
        penalties = list(TEXT_PENALTIES) if text else [1.0]
    backgrounds = [{True: "anywhere"}.get(model.background, model.background)]
    if model.background == "auto" and Y.any(axis=1).all():
        backgrounds = [False]
    elif model.background == "auto":
        # With one label "empty" would mean that all instances of a positive bag are positive.
        backgrounds = ["anywhere", "empty"] if Y.shape[1] > 1 else ["anywhere"]
    return [Setting(alpha, background) for background in backgrounds for alpha in penalties]


def choose(
    model: Any, bags: Any, Y: np.ndarray, weights: np.ndarray, known: np.ndarray | None = None
) -> tuple[Setting, Calibration | None, np.ndarray]:
    """The setting to fit, its calibration (None for the union), and the held-out losses of all settings."""
    options = settings(model, bags, Y)
    if len(options) == 1 and model.decision == "union":
        return options[0], None, np.full(1, np.nan)
    found, losses = [], []
    for setting in options:
        score = partial(_scores, model, setting, bags, Y, weights, known)
        scores = held_out_scores(score, Y, weights)
        found.append(calibrate(scores, Y, weights))
        losses.append(log_loss(found[-1], scores, Y, weights))
    best = int(np.argmin(np.nan_to_num(losses, nan=np.inf)))
    return options[best], found[best] if model.decision == "calibrated" else None, np.array(losses)


def _scores(model, setting, bags, Y, weights, known, train, test):
    """Log-odds of the bags `test` by a model of the bags `train`, less exactly converged."""
    # steps of "em" are few by themselves, and its tolerance is another one
    tol = model.tol if model.solver == "em" else 10 * model.tol
    part = clone(model).set_params(
        alpha=setting.alpha, background=setting.background, decision="union", tol=tol, random_state=0
    )
    part._target = model._target
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said about all bags
        try:
            seen = None if known is None else known[instance_rows(bags.offsets, train)[0]]
            part._fit(bags[train], Y[train], weights[train], seen)
        except DataError:  # none of these bags can be used
            return np.full((len(test), Y.shape[1]), np.nan)
    return part._log_odds(bags[test])
