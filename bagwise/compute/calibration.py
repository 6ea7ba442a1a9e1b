"""From scores to probabilities: a sigmoid per label shrunk to a shared one, and weights of members."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

SLOPE, INTERCEPT = 4.0, 0.3  # how strongly a label's own slope and intercept are drawn to the shared ones
ANCHOR = 0.1  # on the shared slope, which has no end where all labels are separable
TOWARDS_EQUAL = 3.0  # how strongly weights of members are drawn to equal ones


def fit_sigmoids(S: np.ndarray, Y: np.ndarray) -> np.ndarray:
    r"""Slope and intercept of every label, so that ``expit(slope * s + intercept)`` is a probability.

    Minimises, over a slope and intercept :math:`\theta_l` per label and shared ones :math:`\theta`,

    .. math:: \sum_{bl} -\log p(Y_{bl} | S_{bl}, \theta_l)
        + 4 \sum_l (a_l - a)^2 + .3 \sum_l (b_l - b)^2 + .1 a^2,

    a convex problem, by Newton's method: rare labels borrow from the others. A slope below 0 becomes 0, and
    its label is answered by how often it occurs: answers to bags left out fall with the label of the bag that
    is missing, so that a scorer without any knowledge would otherwise pass for a good one turned round.

    Parameters
    ----------
    S : ndarray of shape (n_bags, n_labels)
        Scores of bags that the scorer has not seen, about of size 1.
    Y : ndarray of shape (n_bags, n_labels)
        Their labels, 0 or 1.

    Returns
    -------
    ndarray of shape (2, n_labels)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> S = rng.normal(size=(4000, 2))
    >>> Y = rng.random(S.shape) < expit(2.0 * S - 1.0)
    >>> bool(np.abs(fit_sigmoids(S, Y) - [[2.0], [-1.0]]).max() < 0.1)
    True
    """
    n_labels = S.shape[1]
    penalty = np.array([2.0 * SLOPE, 2.0 * INTERCEPT])[:, None]
    theta, shared = np.zeros((2, n_labels)), np.zeros(2)
    value = _sigmoid_loss(theta, shared, S, Y)
    for _ in range(100):
        P = expit(theta[0] * S + theta[1])
        R, H = P - Y, P * (1.0 - P)
        pull = penalty * (theta - shared[:, None])
        gradient = np.stack([(R * S).sum(axis=0), R.sum(axis=0)]) + pull
        aa = (H * S * S).sum(axis=0) + penalty[0] + 1e-9
        ab, bb = (H * S).sum(axis=0), H.sum(axis=0) + penalty[1] + 1e-9
        shared_gradient = 2.0 * ANCHOR * shared * [1.0, 0.0] - pull.sum(axis=1)
        step, shared_step = _arrow_solve(aa, ab, bb, penalty[:, 0], gradient, shared_gradient)
        size = 1.0
        while True:
            trial = theta - size * step, shared - size * shared_step
            new = _sigmoid_loss(*trial, S, Y)
            if new <= value or size < 1e-6:
                break
            size /= 2.0
        theta, shared = trial
        if value - new < 1e-7 * (1.0 + abs(value)):
            break
        value = new
    useless = theta[0] <= 0.0
    carried = Y.sum(axis=0)[useless]
    theta[0, useless] = 0.0
    theta[1, useless] = np.log((carried + 0.5) / (len(Y) - carried + 0.5))
    return theta


def _sigmoid_loss(theta: np.ndarray, shared: np.ndarray, S: np.ndarray, Y: np.ndarray) -> float:
    apart = np.square(theta - shared[:, None]).sum(axis=1)
    apart = SLOPE * apart[0] + INTERCEPT * apart[1] + ANCHOR * shared[0] ** 2
    return log_loss_sum(theta[0] * S + theta[1], Y) + apart


def _arrow_solve(aa, ab, bb, penalty, gradient, shared_gradient):
    """Newton step: a 2 x 2 block per label, each tied to the shared pair by minus the penalty."""
    det = aa * bb - ab * ab
    inverse = np.array([[bb, -ab], [-ab, aa]]) / det  # (2, 2, n_labels)
    reduced = np.diag(penalty) * gradient.shape[1] + np.diag([2.0 * ANCHOR, 1e-9])
    reduced -= penalty[:, None] * inverse.sum(axis=2) * penalty
    own = np.einsum("ijl,jl->il", inverse, gradient)
    shared_step = np.linalg.lstsq(reduced, shared_gradient + penalty * own.sum(axis=1), rcond=None)[0]
    step = own + np.einsum("ijl,j->il", inverse, penalty * shared_step)
    return step, shared_step


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

    start = np.full(len(Z), equal)
    return minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(Z)).x
