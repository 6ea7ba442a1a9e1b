"""Which members speak for instances: those whose pooled answers predict unseen bags best."""

from __future__ import annotations

import numpy as np

from bagwise.compute.calibration import fit_sigmoids, log_loss_sum
from bagwise.models._shared.scores import pooled, safe_logit
from bagwise.models.auto.view import mix_instances

_MIXED = {"ored": 0.25, "ored_forest": 0.75}  # the softmax is sharp, the forest knows more


def who_speaks(
    P: dict[str, np.ndarray], Y: np.ndarray, offsets: np.ndarray, background: bool
) -> dict[str, float]:
    """Weights of the members that speak for instances, by the loss of their pooled answers.

    ``P`` are the members' distributions over classes of instances of unseen bags.
    """
    candidates: list[dict[str, float]] = [{name: 1.0} for name in P]
    if "ored" in P and "ored_forest" in P:
        candidates += [dict(_MIXED)]
    if not candidates:
        return {}
    losses = [
        _bag_loss(mix_instances(P, weights, Y.shape[1], background), Y, offsets) for weights in candidates
    ]
    return candidates[int(np.argmin(losses))]


def _bag_loss(Q: np.ndarray, Y: np.ndarray, offsets: np.ndarray) -> float:
    varies = Y.min(axis=0) < Y.max(axis=0)
    truth = Y[:, varies].astype(np.float64)
    largest, mean, noisy_or = pooled(Q[:, : len(varies)][:, varies], offsets)
    losses = []
    for S in (safe_logit((largest + mean) / 2.0), safe_logit(noisy_or)):
        slope, intercept = fit_sigmoids(S, truth)
        losses.append(log_loss_sum(slope * S + intercept, truth))
    return min(losses)


def background_shift(
    P: dict[str, np.ndarray], weights: dict[str, float], Y: np.ndarray, bag_of_row: np.ndarray
) -> float:
    """How far even odds are from what instances of bags without labels say, halved.

    One instance explains a label of its bag, so that nothing pushes the probability of a second one up: it
    may stay below that of the background although no instance of a bag without labels looks like it. Those
    are known to be background: the line is drawn half way between the 99th of a hundred of them and even
    odds, where they are all on their side of it.
    """
    known = (Y.sum(axis=1) == 0)[bag_of_row]
    if not known.any():
        return 0.0
    Q = mix_instances(P, weights, Y.shape[1], True)[known]
    odds = np.log(Q[:, :-1].max(axis=1)) - np.log(Q[:, -1])
    return float(max(0.0, -np.quantile(odds, 0.99) / 2.0))
