"""Measures for data whose instances carry labels of their own."""

from __future__ import annotations

import numpy as np

from bagwise.compute.aligned import frozen
from bagwise.errors import DataError
from bagwise.metrics import _kernels
from bagwise.metrics._kernels import as_label_sets, as_scores, one_of, same_shape
from bagwise.utils.arrays import checked_offsets

__all__ = ["instance_accuracy", "key_instance_accuracy"]


def instance_accuracy(z_true, z_pred):
    """Fraction of the labelled instances whose label is predicted.

    Parameters
    ----------
    z_true : int array of shape (n_instances,)
        True label of each instance; -1 where unknown, and then left out.
    z_pred : int array of shape (n_instances,)
        Predicted labels.

    Returns
    -------
    float
        Between 0 and 1 (best); NaN if no instance is labelled.

    Examples
    --------
    >>> instance_accuracy([2, 0, -1, 1], [2, 1, 1, 1])
    0.6666666666666666
    """
    z_true, z_pred = _as_labels(z_true, "z_true"), _as_labels(z_pred, "z_pred")
    same_shape(z_pred, z_true.shape, "z_pred", "z_true")
    known = z_true != -1
    return float((z_true == z_pred)[known].mean()) if known.any() else float("nan")


def key_instance_accuracy(F, offsets, instance_Y, Y=None, *, average="pair"):
    """How often the best-scored instance of a bag for one of its labels truly has that label.

    Judged are all pairs of a bag and a label it has, for which some instance of the bag truly has the label.

    Parameters
    ----------
    F : array of shape (n_instances, n_labels)
        Scores of the instances; the first of equally scored instances is taken.
    offsets : int array of shape (n_bags + 1,)
        Bag ``b`` is ``F[offsets[b]:offsets[b + 1]]``.
    instance_Y : array of shape (n_instances,) or (n_instances, n_labels)
        True labels: one number per instance, -1 where unknown, or label sets as 0 and 1.
    Y : array of 0 and 1, shape (n_bags, n_labels), optional
        Label sets of the bags; the union of the instances' labels if not given.
    average : {"pair", "bag"}
        Average over all pairs, or over the pairs of each bag and then over bags.

    Returns
    -------
    float
        Between 0 and 1 (best); NaN without any pair to judge.

    Examples
    --------
    >>> F = [[0.9, 0.1], [0.2, 0.3], [0.6, 0.8]]
    >>> key_instance_accuracy(F, [0, 2, 3], [0, 0, 1])
    1.0
    >>> key_instance_accuracy(F, [0, 2, 3], [1, 0, 1])
    0.3333333333333333
    """
    one_of(average, ("pair", "bag"), "average")
    F = np.asarray(F)
    if F.ndim != 2:
        raise DataError(f"expected F of shape (n_instances, n_labels), received shape {F.shape}")
    F = as_scores(F, F.shape, "F")
    offsets = checked_offsets(offsets, F.shape[0])
    if np.ndim(instance_Y) == 1:
        z = _as_labels(instance_Y, "instance_Y")
        same_shape(z, F.shape[:1], "instance_Y", "the first column of F")
        if z.size and z.max() >= F.shape[1]:
            raise DataError(f"expected instance_Y below the {F.shape[1]} columns of F, received {z.max()}")
        Z = z[:, None] == np.arange(F.shape[1])
    else:
        Z = as_label_sets(instance_Y, "instance_Y")
        same_shape(Z, F.shape, "instance_Y", "F")
    n_bags = offsets.size - 1
    if Y is None:
        Y = np.ones((n_bags, F.shape[1]), np.bool_)
    else:
        Y = as_label_sets(Y)
        same_shape(Y, (n_bags, F.shape[1]), "Y", "offsets and F")
    hits, pairs = np.zeros(n_bags, np.int64), np.zeros(n_bags, np.int64)
    _kernels.key_instances(frozen(F), frozen(offsets), frozen(Z), frozen(Y), hits, pairs)
    if not pairs.any():
        return float("nan")
    if average == "pair":
        return float(hits.sum() / pairs.sum())
    return float(np.mean(hits[pairs > 0] / pairs[pairs > 0]))


def _as_labels(z, name):
    z = np.asarray(z)
    if z.ndim != 1 or z.dtype.kind not in "iu":
        if z.size or z.ndim != 1:
            raise DataError(
                f"expected {name} as one integer per instance, received {z.dtype} of shape {z.shape}"
            )
        z = z.astype(np.int64)
    if z.size and z.min() < -1:
        row = np.argmin(z)
        raise DataError(
            f"expected {name} to be label numbers, or -1 where unknown; found {z[row]} in row {row}"
        )
    return z
