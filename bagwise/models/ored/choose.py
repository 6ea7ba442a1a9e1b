"""What "auto" stands for: what predicts held-out bags best, and the decision with it.

Four things differ from set to set, and the likelihood of the training bags does not tell them: how strongly
text should be penalised, what bags without any label say, how a bag is to be judged by its instances, and how
probable a label must be before it is predicted. Models of two thirds of the bags score the rest; the setting
of least calibrated log loss is taken.
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
    """A penalty; where instances without a label may be ("anywhere", in "empty" bags, False); a kind."""

    alpha: float
    background: Any
    bag_probability: str = "noisy_or"


def kinds(model: Any, n_labels: int) -> tuple[str, ...]:
    """Ways to judge a bag by its instances among which `choose` has the choice.

    The softmax lets one label of an instance speak against all others. Where instances carry several, as long
    pieces of text do, the class scores themselves say more. They are no probabilities: they need a
    calibration.
    """
    if model.bag_probability != "auto":
        return (model.bag_probability,)
    several = model.decision == "calibrated" and model._target != "multiclass" and n_labels > 1
    return ("noisy_or", "score") if several else ("noisy_or",)


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
    ways = kinds(model, Y.shape[1])
    options = [setting._replace(bag_probability=ways[0]) for setting in settings(model, bags, Y)]
    if len(options) == 1 and model.decision == "union":
        return options[0], None, np.full(1, np.nan)
    found, losses = [], []
    for k, setting in enumerate(options):
        score = partial(_scores, model, setting, ways, bags, Y, weights, known)
        # of too few bags nothing was held out, whatever the kind
        scores = np.broadcast_to(held_out_scores(score, Y, weights), (len(ways), *Y.shape))
        each = [calibrate(S, Y, weights) for S in scores]
        loss = [log_loss(calibration, S, Y, weights) for calibration, S in zip(each, scores)]
        way = int(np.argmin(np.nan_to_num(loss, nan=np.inf)))
        options[k] = setting._replace(bag_probability=ways[way])
        found.append(each[way])
        losses.append(loss[way])
    best = int(np.argmin(np.nan_to_num(losses, nan=np.inf)))
    return options[best], found[best] if model.decision == "calibrated" else None, np.array(losses)


def _scores(model, setting, ways, bags, Y, weights, known, train, test):
    """Log-odds of the bags `test`, of each kind, by a model of the bags `train`, less exactly converged."""
    # steps of "em" are few by themselves, and its tolerance is another one
    tol = model.tol if model.solver == "em" else 10 * model.tol
    part = clone(model).set_params(
        alpha=setting.alpha,
        background=setting.background,
        bag_probability="noisy_or",  # without a decision of its own; all kinds are asked for below
        decision="union",
        tol=tol,
        random_state=0,
    )
    part._target = model._target
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said about all bags
        try:
            seen = None if known is None else known[instance_rows(bags.offsets, train)[0]]
            part._fit(bags[train], Y[train], weights[train], seen)
        except DataError:  # none of these bags can be used
            return np.full((len(ways), len(test), Y.shape[1]), np.nan)
    return np.stack([part._log_odds(bags[test], kind) for kind in ways])
