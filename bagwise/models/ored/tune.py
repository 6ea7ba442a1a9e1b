"""What "auto" stands for: what predicts held-out bags best, and the decision with it.

Four things differ from set to set, and the likelihood of the training bags does not tell them: how strongly
text should be penalised, what bags without any label say, how a bag is to be judged by its instances, and how
probable a label must be before it is predicted. Models of two thirds of the bags score the rest; the setting
of least calibrated log loss is taken.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from bagwise.base.blocks import Block, Blocks
from bagwise.compute.calibration import Calibration, calibrate, log_loss
from bagwise.compute.parts import map_parts, map_reduce
from bagwise.compute.scaling import TEXT_SHARE, is_text
from bagwise.errors import DataError
from bagwise.models._shared.held_out import HeldOut, held_out_blocks, labels_of
from bagwise.models.ored.fit import learn

# Penalties tried on text. Rows of a logistic regression at its usual C = 1 on tf-idf of unit length have the
# penalty 10 here, where words have mean square 1 and a sentence some ten of them.
TEXT_PENALTIES = (1.0, 3.0, 10.0)


class Setting(NamedTuple):
    """A penalty; where instances without a label may be ("anywhere", in "empty" bags, False); a kind."""

    alpha: float
    background: Any
    bag_probability: str = "noisy_or"


def choose(model: Any, blocks: Blocks, background: Any) -> tuple[Setting, Calibration | None, np.ndarray]:
    """The setting to fit, its calibration (None for the union), and the held-out losses of all settings."""
    text = None  # shards are counted to the end
    if blocks.kind != "shards":  # what is on a GPU is not text
        text = blocks.kind == "memory" and is_text(blocks.block.bags.X)  # type: ignore[attr-defined]
    facts = map_reduce(first_facts, text, blocks)
    ways: tuple[str, ...] = (model.bag_probability,)
    if model.bag_probability == "auto":
        # The softmax lets one label of an instance speak against all others. Where instances carry several,
        # as long pieces of text do, the class scores themselves say more. They are no probabilities: they
        # need a calibration.
        several = model.decision == "calibrated" and model._target != "multiclass" and blocks.n_labels > 1
        ways = ("noisy_or", "score") if several else ("noisy_or",)
    options = [setting._replace(bag_probability=ways[0]) for setting in settings(model, facts, background)]
    if len(options) == 1 and model.decision == "union":
        return options[0], None, np.full(1, np.nan)
    always = {"always": facts["label_counts"] == facts["n_bags"], "n_bags": facts["n_bags"]}
    folds = held_out_blocks(blocks)
    if not folds:  # too few bags to hold any out
        unknown, nobody = np.full((0, blocks.n_labels), np.nan), np.zeros((0, blocks.n_labels), np.int8)
        calibration = calibrate(unknown, nobody, **always)
        none = np.full(len(options), np.nan)
        return options[0], calibration if model.decision == "calibrated" else None, none
    Y, weights, order = labels_of(folds)
    found, losses = [], []
    for k, setting in enumerate(options):
        scores = np.concatenate([_scores(model, setting, ways, fold) for fold in folds], axis=1)[:, order]
        each = [calibrate(S, Y, weights, **always) for S in scores]
        loss = [log_loss(calibration, S, Y, weights) for calibration, S in zip(each, scores)]
        way = int(np.argmin(np.nan_to_num(loss, nan=np.inf)))
        options[k] = setting._replace(bag_probability=ways[way])
        found.append(each[way])
        losses.append(loss[way])
    best = int(np.argmin(np.nan_to_num(losses, nan=np.inf)))
    return options[best], found[best] if model.decision == "calibrated" else None, np.array(losses)


def first_facts(text: bool | None, block: Block) -> dict[str, Any]:
    """Counts that decide what "auto" stands for; ``text`` None counts the values that are not zero, too."""
    bags, Y = block.bags, block.Y
    cells = bags.X.shape[0] * bags.X.shape[1]
    if text is None:
        filled = int(np.count_nonzero(bags.X.data if bags.is_sparse else bags.X))
    else:
        filled = 0 if text else cells
    counts = {"n_bags": len(Y), "n_unlabelled": int((~Y.any(axis=1)).sum()), "cells": cells, "filled": filled}
    return counts | {"label_counts": Y.sum(axis=0, dtype=np.int64)}


def settings(model: Any, facts: dict[str, Any], background: Any) -> list[Setting]:
    """Settings among which `choose` has the choice; the first is taken where bags are too few to tell."""
    penalties = [model.alpha]
    if model.alpha == "auto":
        text = model.kernel is None and facts["filled"] < TEXT_SHARE * facts["cells"]
        penalties = list(TEXT_PENALTIES) if text else [1.0]
    backgrounds = [background]
    if background == "auto" and facts["n_unlabelled"] == 0:
        backgrounds = [False]
    elif background == "auto":
        # With one label "empty" would mean that all instances of a positive bag are positive.
        backgrounds = ["anywhere", "empty"] if len(facts["label_counts"]) > 1 else ["anywhere"]
    return [Setting(alpha, background) for background in backgrounds for alpha in penalties]


def _scores(model: Any, setting: Setting, ways: tuple[str, ...], fold: HeldOut) -> np.ndarray:
    """Log-odds of the bags held out, of each kind, by a model of the others, less exactly converged."""
    # steps of "em" are few by themselves, and its tolerance is another one
    tol = model.tol if model.solver == "em" else 10 * model.tol
    part = clone(model).set_params(tol=tol, random_state=0)
    part.n_features_in_ = model.n_features_in_
    unknown = np.full((len(ways), fold.test.n_bags, fold.test.n_labels), np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said about all bags
        try:
            learn(part, fold.train, setting)
        except DataError as error:
            if error.path is not None:  # a part that cannot be read
                raise
            return unknown  # none of these bags can be used
    scores = np.concatenate(list(map_parts(_log_odds, (part, ways), fold.test)), axis=1)
    seen = map_reduce(_carried, None, fold.train) > 0
    return np.where(seen, scores, np.nan)


def _log_odds(params: Any, block: Block) -> np.ndarray:
    model, ways = params
    return np.stack([model._log_odds(block.bags, kind) for kind in ways])


def _carried(_: None, block: Block) -> np.ndarray:
    return (block.Y[block.weights > 0] > 0).sum(axis=0)
