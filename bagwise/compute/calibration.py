"""From scores to probabilities, weights and label sets: one sigmoid per label, one finder of thresholds.

A sigmoid has two numbers per label. Labels share what they have in common: slopes and intercepts are drawn to
shared ones, so that a label with three bags does not get a rule of its own. All sigmoids of the library are
the minimum of one convex objective, found by one solver; `calibrate` and `fit_sigmoids` differ in what they
know about the scores.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from bagwise.compute.optim import minimise

__all__ = [
    "Calibration",
    "best_offset",
    "calibrate",
    "calibrated_loss",
    "fit_sigmoids",
    "log_loss",
    "log_loss_sum",
    "mixing_weights",
]

_LARGEST = 30.0  # log-odds beyond this say no more
TOWARDS_EQUAL = 3.0  # how strongly weights of members are drawn to equal ones
_STEPS = 100  # of Newton's method; it takes about ten


class Prior(NamedTuple):
    """What is known of slopes and intercepts before any bag is seen; pairs are of slope and intercept.

    Half the square of a label's distance from the shared pair costs ``pull``, that of the shared pair from
    ``centre`` costs ``anchor``.
    """

    pull: np.ndarray
    centre: np.ndarray
    anchor: np.ndarray
    turned: bool  # whether slopes may be negative while they are learned


# Scores that are log-odds already, or nearly: slopes are drawn to 1 and never negative. A quarter to five
# times as much pull changed the Hamming loss of ORed on birds, Frost and MSRCv2 by .0013 at most.
LOG_ODDS = Prior(np.array([4.0, 0.3]), np.array([1.0, 0.0]), np.array([0.1, 0.1]), turned=False)
# Scores of any scale: the shared slope has to be found, and would have no end where all labels are separable.
# A scorer without any knowledge must show by a negative slope that it has none, see `fit_sigmoids`.
ANY_SCALE = Prior(np.array([8.0, 0.6]), np.zeros(2), np.array([0.2, 0.0]), turned=True)


class Calibration(NamedTuple):
    """Log-odds of a label: ``slope * score + intercept``, both of shape (n_labels,)."""

    slope: np.ndarray
    intercept: np.ndarray

    def log_odds(self, scores: np.ndarray) -> np.ndarray:
        """Calibrated log-odds of scores of shape (n_bags, n_labels)."""
        return scores * self.slope + self.intercept

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Calibrated probabilities; a label is predicted above one half."""
        return expit(self.log_odds(scores))


def calibrate(
    scores: np.ndarray,
    Y: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    always: np.ndarray | None = None,
    n_bags: int | None = None,
) -> Calibration:
    """Learn a sigmoid per label from log-odds of bags that the model did not see.

    Parameters
    ----------
    scores : ndarray of shape (n_bags, n_labels)
        Larger is more probable, best on the scale of log-odds; NaN where unknown.
    Y : ndarray of shape (n_bags, n_labels)
        The labels, 0 or 1.
    weights : ndarray of shape (n_bags,), optional
        Weights of the bags.
    always : ndarray of shape (n_labels,), optional
        Labels that every bag carries, also those that are not among these; by default these tell.
    n_bags : int, optional
        Number of all bags; by default of these.

    Returns
    -------
    Calibration
        Slopes are never negative, so each label ranks bags as its scores do. A label that every bag carries
        is always predicted; one that no bag carries keeps its scores as log-odds.

    Examples
    --------
    Scores that are 3 too high, and twice too sure:

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(500, 4))
    >>> Y = rng.random((500, 4)) < expit(truth)
    >>> found = calibrate(2 * truth + 3, Y)
    >>> found.slope.round(1).tolist(), found.intercept.round(1).tolist()
    ([0.5, 0.5, 0.4, 0.5], [-1.6, -1.5, -1.3, -1.5])
    """
    n_labels = Y.shape[1]
    S, each = _known(scores, weights)
    positive = (each * (Y > 0)).sum(axis=0)
    negative = each.sum(axis=0) - positive
    slope, intercept = np.ones(n_labels), np.zeros(n_labels)
    varies = (positive > 0) & (negative > 0)
    if varies.any():
        slope[varies], intercept[varies] = _least_loss(S[:, varies], Y[:, varies], LOG_ODDS, each[:, varies])
    n_bags = len(Y) if n_bags is None else n_bags
    everywhere = ((Y > 0).all(axis=0) if always is None else always) & (n_bags > 0)
    slope[everywhere], intercept[everywhere] = 0.0, np.log1p(n_bags)  # rule of succession
    return Calibration(slope, intercept)


def _known(scores: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Scores within the range that says something, and the weight of each; both 0 where it is unknown."""
    known = np.isfinite(scores)
    each = np.where(known, 1.0 if weights is None else weights[:, None], 0.0)
    return np.where(known, np.clip(scores, -_LARGEST, _LARGEST), 0.0), each


def fit_sigmoids(S: np.ndarray, Y: np.ndarray) -> Calibration:
    """Learn a sigmoid per label from scores of about size 1, whatever they mean.

    A slope below 0 becomes 0, and its label is answered by how often it occurs: answers to bags left out fall
    with the label of the bag that is missing, so that a scorer without any knowledge would otherwise pass for
    a good one turned round.

    Parameters
    ----------
    S : ndarray of shape (n_bags, n_labels)
        Scores of bags that the scorer has not seen.
    Y : ndarray of shape (n_bags, n_labels)
        Their labels, 0 or 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> S = rng.normal(size=(4000, 2))
    >>> Y = rng.random(S.shape) < expit(2.0 * S - 1.0)
    >>> bool(np.abs(np.array(fit_sigmoids(S, Y)) - [[2.0], [-1.0]]).max() < 0.1)
    True
    """
    slope, intercept = _least_loss(S, Y, ANY_SCALE)
    useless = slope <= 0.0
    carried = Y.sum(axis=0)[useless]
    slope[useless] = 0.0
    intercept[useless] = np.log((carried + 0.5) / (len(Y) - carried + 0.5))
    return Calibration(slope, intercept)


def _least_loss(S: np.ndarray, Y: np.ndarray, prior: Prior, weights: np.ndarray | None = None) -> np.ndarray:
    r"""Slopes and intercepts (2, n_labels) of least penalised log loss, by Newton's method.

    With :math:`\theta_l` the pair of label l and :math:`\theta` the shared one, the convex problem is

    .. math:: \sum_{bl} -w_{bl} \log p(Y_{bl} | S_{bl}, \theta_l)
        + \tfrac12 \sum_l |\theta_l - \theta|^2_{pull} + \tfrac12 |\theta - centre|^2_{anchor}.

    Where slopes may not be negative, those that stand at 0 and want beyond it stay there for a step.
    """
    T = np.where(Y > 0, 1.0, -1.0)
    theta = np.repeat(prior.centre[:, None], S.shape[1] + 1, axis=1)  # the last column is the shared pair
    value, gradient, curved = _penalised(theta, S, T, prior, weights)
    for _ in range(_STEPS):
        bounded = (theta[0] <= 0.0) & (gradient[0] >= 0.0) & (not prior.turned)
        step = _newton_step(curved, S, gradient, bounded, prior)
        length = 1.0
        while True:
            new = theta - length * step
            if not prior.turned:
                np.maximum(new[0], 0.0, out=new[0])
            found = _penalised(new, S, T, prior, weights)
            if found[0] <= value + 1e-4 * float(np.vdot(gradient, new - theta)):
                break
            length *= 0.5
            if length < 1e-6:  # rounding is all that is left
                return theta[:, :-1]
        gained = value - found[0]
        theta, (value, gradient, curved) = new, found
        if gained <= 1e-11 * (1.0 + abs(value)):
            break
    return theta[:, :-1]


def _penalised(
    theta: np.ndarray, S: np.ndarray, T: np.ndarray, prior: Prior, weights: np.ndarray | None
) -> tuple[float, np.ndarray, np.ndarray]:
    """Value and gradient of the objective, and the second derivative of each loss by its logit."""
    margin = T * (S * theta[0, :-1] + theta[1, :-1])
    small = np.exp(-np.abs(margin))  # one exponential for the loss and its derivatives
    losses = np.log1p(small) + np.maximum(-margin, 0.0)
    slopes = -T * (np.where(margin > 0, small, 1.0) / (1.0 + small))
    curved = small / np.square(1.0 + small)
    if weights is not None:
        losses, slopes, curved = weights * losses, weights * slopes, weights * curved
    apart = theta[:, :-1] - theta[:, -1:]
    pull, outer = prior.pull[:, None] * apart, prior.anchor * (theta[:, -1] - prior.centre)
    value = losses.sum() + 0.5 * (pull * apart).sum() + 0.5 * outer @ (theta[:, -1] - prior.centre)
    own = np.stack([(slopes * S).sum(axis=0), slopes.sum(axis=0)]) + pull
    return float(value), np.column_stack([own, outer - pull.sum(axis=1)]), curved


def _newton_step(
    curved: np.ndarray, S: np.ndarray, gradient: np.ndarray, bounded: np.ndarray, prior: Prior
) -> np.ndarray:
    """Solve the system of a step: a 2 x 2 block per label, each tied to the shared pair by minus its pull."""
    aa = (curved * S * S).sum(axis=0) + prior.pull[0] + 1e-9
    ab, bb = (curved * S).sum(axis=0), curved.sum(axis=0) + prior.pull[1] + 1e-9
    inverse = np.array([[bb, -ab], [-ab, aa]]) / (aa * bb - ab * ab)  # (2, 2, n_labels)
    held = bounded[:-1]
    inverse[:, :, held], inverse[1, 1, held] = 0.0, 1.0 / bb[held]
    pull, free = prior.pull, np.array([not bounded[-1], True])
    reduced = np.diag(pull) * len(aa) + np.diag(prior.anchor) + 1e-9 * np.eye(2)
    reduced -= pull[:, None] * inverse.sum(axis=2) * pull
    own = np.einsum("ijl,jl->il", inverse, gradient[:, :-1])
    shared = np.zeros(2)
    right = gradient[:, -1] + pull * own.sum(axis=1)
    shared[free] = np.linalg.lstsq(reduced[np.ix_(free, free)], right[free], rcond=None)[0]
    return np.column_stack([own + np.einsum("ijl,j->il", inverse, pull * shared), shared])


def log_loss(
    calibration: Calibration, scores: np.ndarray, Y: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Mean log loss of calibrated scores over the labels that are known; NaN if none is.

    Examples
    --------
    >>> plain = Calibration(np.ones(1), np.zeros(1))
    >>> round(log_loss(plain, np.array([[0.0], [np.nan]]), np.array([[1], [0]])), 3)  # log 2
    0.693
    """
    S, each = _known(scores, weights)
    odds = calibration.log_odds(S)
    losses = np.logaddexp(0.0, np.where(Y > 0, -odds, odds))
    return float((each * losses).sum() / each.sum()) if each.any() else float("nan")


def calibrated_loss(S: np.ndarray, Y: np.ndarray) -> float:
    """Sum of log losses of scores once `fit_sigmoids` has made the best of them."""
    return log_loss_sum(fit_sigmoids(S, Y).log_odds(S), Y)


def log_loss_sum(F: np.ndarray, Y: np.ndarray) -> float:
    """Sum of ``-log p(y)`` for logits ``F``.

    Examples
    --------
    >>> round(log_loss_sum(np.zeros((2, 1)), np.array([[0], [1]])), 3)
    1.386
    """
    return float(np.logaddexp(0.0, F).sum() - np.vdot(F, Y))


def mixing_weights(Z: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Weights of at least 0 for members, shared by all labels: least log loss of the weighted logits.

    A ridge towards equal weights keeps few bags from choosing a member by luck.

    Parameters
    ----------
    Z : ndarray of shape (n_members, n_bags, n_labels)
        Calibrated logits of bags that the members have not seen.
    Y : ndarray of shape (n_bags, n_labels)
        Their labels.

    Returns
    -------
    ndarray of shape (n_members,)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(2, 500, 1))
    >>> w = mixing_weights(Z, rng.random((500, 1)) < expit(Z[0]))
    >>> bool(w[0] > 0.7 and w[1] < 0.3)
    True
    """
    equal = 1.0 / len(Z)
    flat, y = Z.reshape(len(Z), -1), Y.ravel()

    def loss(w):
        F = w @ flat
        value = float(np.logaddexp(0.0, F).sum() - F @ y) + TOWARDS_EQUAL * np.square(w - equal).sum()
        return value, flat @ (expit(F) - y) + 2.0 * TOWARDS_EQUAL * (w - equal)

    return minimise(loss, np.full(len(Z), equal), bounds=[(0.0, None)] * len(Z)).x


def best_offset(
    scores: np.ndarray, Y: np.ndarray, measure: str = "errors", *, near: float = 0.0, apart: bool = True
) -> float:
    """Threshold that makes ``scores > threshold`` agree best with the truth; one for all that is given.

    Parameters
    ----------
    scores, Y : ndarray
        Scores, and whether each is that of a label that is there; of any shape.
    measure : {"errors", "f1"}, default="errors"
        What is best: the fewest errors, or the largest F1.
    near : float, default=0.0
        Among equally good thresholds the nearest to it is taken; itself, where it is one of them.
    apart : bool, default=True
        Whether a threshold beyond all scores keeps a distance to them.

    Examples
    --------
    >>> best_offset(np.array([[3.0, 1.0], [2.0, -1.0]]), np.array([[1, 0], [1, 0]]))
    1.5
    >>> best_offset(np.array([1.0, 2.0, 3.0]), np.array([0, 1, 1]), "f1")
    1.5
    """
    values = scores.ravel()
    order = np.argsort(values, kind="stable")
    values, truth = values[order], Y.ravel()[order] > 0
    # missed[k] of those that are there, if the k smallest are refused and the rest predicted
    missed = np.zeros(len(values) + 1, np.int32)
    np.cumsum(truth, dtype=np.int32, out=missed[1:])
    refused, n_true = np.arange(len(missed), dtype=np.int32), missed[-1]
    worse: np.ndarray = 2 * missed + (len(values) - n_true - refused)  # errors
    if measure == "f1":
        hits, predicted = n_true - missed, len(values) - refused
        worse = -2.0 * hits / np.maximum(predicted + n_true, 1)
    at_near = worse[np.searchsorted(values, near, side="right")]
    worse[1:-1][values[1:] == values[:-1]] = len(values) + 1  # no cut through equal scores
    if at_near <= worse.min() + 1e-12:
        return near
    best = []
    for k in np.flatnonzero(worse <= worse.min() + 1e-12).tolist():
        below, above = float(values[max(k - 1, 0)]), float(values[min(k, len(values) - 1)])
        outermost = {0: above - 1.0, len(values): below + 1e-3 * (1.0 + abs(below))}
        if not apart:
            outermost = {0: float(np.nextafter(above, -np.inf)), len(values): below}
        best.append(outermost.get(k, (below + above) / 2.0))
    return min(best, key=lambda cut: abs(cut - near))
