"""Properties of a classifier of bags that do not depend on the algorithm.

Each check is a function of an unfitted estimator and raises AssertionError with a sentence that says
what does not hold.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from bagwise.bags import Bags
from bagwise.base import MIMLClassifier


def sample_bags(n_bags: int = 40, n_labels: int = 3, seed: int = 0) -> tuple[Bags, np.ndarray]:
    """Small bags whose labels are the union of well-separated instance classes, kept as a fact."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, n_bags)
    z = rng.integers(0, n_labels, sizes.sum())
    X = 3.0 * np.eye(n_labels, n_labels + 2)[z] + rng.normal(scale=0.5, size=(len(z), n_labels + 2))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    bags = Bags(X, offsets, instance_info={"label": z})
    Y = np.zeros((n_bags, n_labels), dtype=np.int64)
    Y[bags.index, z] = 1
    return bags, Y


def check_miml_estimator(estimator: MIMLClassifier, *, scikit_learn: bool = True) -> None:
    """Run all common checks, and scikit-learn's own, over an estimator.

    Parameters
    ----------
    estimator : MIMLClassifier
        Unfitted.
    scikit_learn : bool, default=True
        Whether to run scikit-learn's ``check_estimator`` as well.

    Examples
    --------
    >>> from bagwise.models import MIMLDummy
    >>> check_miml_estimator(MIMLDummy(), scikit_learn=False)
    """
    for check in all_checks():
        check(clone(estimator))
    if scikit_learn:
        check_scikit_learn(clone(estimator))


def all_checks() -> list[Callable[[Any], None]]:
    """List the checks, each a function of an unfitted estimator."""
    return [value for name, value in globals().items() if name.startswith("check_bags_")]


def check_scikit_learn(estimator: MIMLClassifier) -> None:
    """Scikit-learn's own checks, on tables as bags of one instance; declared failures must have a reason."""
    expected = estimator._expected_failed_checks()
    results = check_estimator(estimator, expected_failed_checks=expected, on_fail=None, on_skip=None)
    failed = [f"{r['check_name']}: {r['exception']}" for r in results if r["status"] == "failed"]
    assert not failed, "\n".join(failed)


# ---------------------------------------------------------------------- what instances and bags may do


def check_bags_order_of_instances(estimator: MIMLClassifier) -> None:
    """A bag is a set: the order of its instances changes nothing."""
    bags, Y = sample_bags()
    estimator.fit(bags, Y)
    rng = np.random.default_rng(1)
    order = np.concatenate(
        [rng.permutation(np.arange(a, b)) for a, b in zip(bags.offsets[:-1], bags.offsets[1:])]
    )
    shuffled = Bags(bags.X[order], bags.offsets)
    message = "scores depend on the order of instances within a bag"
    assert_allclose(
        estimator.decision_function(shuffled),
        estimator.decision_function(bags),
        rtol=1e-7,
        atol=1e-8,
        err_msg=message,
    )
    expected = estimator.instance_scores(bags)[order]
    assert_allclose(estimator.instance_scores(shuffled), expected, rtol=1e-7, atol=1e-8, err_msg=message)


def check_bags_order_of_bags(estimator: MIMLClassifier) -> None:
    """Bags are predicted independently: another order gives the same rows in that order."""
    bags, Y = sample_bags()
    estimator.fit(bags, Y)
    order = np.random.default_rng(2).permutation(len(bags))
    assert_allclose(
        estimator.decision_function(bags[order]),
        estimator.decision_function(bags)[order],
        rtol=1e-7,
        atol=1e-8,
        err_msg="scores of a bag depend on the bags around it",
    )


def check_bags_one_at_a_time(estimator: MIMLClassifier) -> None:
    """One bag alone gets the same scores as among others."""
    bags, Y = sample_bags()
    estimator.fit(bags, Y)
    together = estimator.decision_function(bags[:8])
    alone = np.vstack([estimator.decision_function(bags[i : i + 1]) for i in range(8)])
    assert_allclose(
        alone, together, rtol=1e-6, atol=1e-8, err_msg="one bag at a time differs from all together"
    )


def check_bags_label_permutation(estimator: MIMLClassifier) -> None:
    """Renaming labels renames the output and nothing else, unless the traits say otherwise."""
    if not estimator.traits.label_equivariant:
        return
    bags, Y = sample_bags()
    order = np.array([2, 0, 1])
    permuted = Bags(
        bags.X, bags.offsets, instance_info={"label": np.argsort(order)[bags.instance_info["label"]]}
    )
    first = clone(estimator).fit(bags, Y).decision_function(bags)
    second = clone(estimator).fit(permuted, Y[:, order]).decision_function(bags)
    assert_allclose(second, first[:, order], rtol=1e-3, atol=1e-4, err_msg="labels are not treated alike")


# ---------------------------------------------------------------------- how data may come


def check_bags_list_of_arrays(estimator: MIMLClassifier) -> None:
    """A list of 2-D arrays is as good as a Bags."""
    bags, Y = sample_bags()
    estimator.fit(bags, Y)
    assert_array_equal(estimator.predict(list(bags)), estimator.predict(bags))


def check_bags_sparse(estimator: MIMLClassifier) -> None:
    """CSR instances give the scores of the same dense ones; who cannot take them says so."""
    bags, Y = sample_bags()
    dense = np.where(np.abs(bags.X) > 0.3, bags.X, 0.0)
    thinned = bags.with_X(dense)
    as_csr = bags.with_X(sparse.csr_array(dense))
    if not estimator.traits.sparse:
        _assert_refuses(lambda: estimator.fit(as_csr, Y), "sparse")
        return
    model = clone(estimator).fit(thinned, Y)
    assert_allclose(
        model.decision_function(as_csr),
        model.decision_function(thinned),
        rtol=1e-5,
        atol=1e-6,
        err_msg="the same bags as CSR get other scores",
    )
    clone(estimator).fit(as_csr, Y).predict(as_csr)


def check_bags_float32(estimator: MIMLClassifier) -> None:
    """Single precision gives nearly the same scores as double precision."""
    bags, Y = sample_bags()
    estimator.fit(bags, Y)
    single = estimator.decision_function(bags.with_X(bags.X.astype(np.float32)))
    assert_allclose(single, estimator.decision_function(bags), rtol=1e-2, atol=1e-3)


def check_bags_read_only(estimator: MIMLClassifier) -> None:
    """Memory that cannot be written, as of a memory map, is no obstacle."""
    bags, Y = sample_bags()
    for array in (bags.X, bags.offsets, Y):
        array.setflags(write=False)
    estimator.fit(bags, Y)
    estimator.predict(bags)
    estimator.instance_scores(bags)


def check_bags_input_unchanged(estimator: MIMLClassifier) -> None:
    """Neither fitting nor predicting writes into the caller's arrays."""
    bags, Y = sample_bags()
    X0, Y0 = bags.X.copy(), Y.copy()
    estimator.fit(bags, Y)
    estimator.predict(bags)
    estimator.annotate(bags, Y)
    assert_array_equal(bags.X, X0, err_msg="the instances were changed")
    assert_array_equal(Y, Y0, err_msg="the labels were changed")


def check_bags_degenerate_labels(estimator: MIMLClassifier) -> None:
    """A label that is always or never there neither stops the fit nor gives NaN."""
    bags, Y = sample_bags(n_labels=4)
    z = bags.instance_info["label"]
    Y[:, 0], Y[:, 1] = 1, 0
    truth = np.where(z == 1, 0, z)
    known = Bags(bags.X, bags.offsets, instance_info={"label": truth})
    estimator.fit(known, Y)
    assert np.isfinite(estimator.decision_function(bags)).all(), "NaN or infinite scores for a constant label"


def check_bags_constant_feature(estimator: MIMLClassifier) -> None:
    """A feature that never changes has no say; its spread is rounding noise, not a scale to divide by."""
    bags, Y = sample_bags()
    estimator = clone(estimator)
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    scores = []
    for value in (0.1, 0.1 + 1e-9):
        wider = bags.with_X(np.column_stack([bags.X, np.full(bags.n_instances, value)]))
        estimator = clone(estimator).fit(wider, Y)
        scores.append(estimator.decision_function(wider))
    scale = max(1.0, float(np.abs(scores[0]).max()))
    assert_allclose(
        scores[1], scores[0], rtol=1e-3, atol=1e-3 * scale, err_msg="a constant feature moves the scores"
    )


def check_bags_single_instances(estimator: MIMLClassifier) -> None:
    """Bags of one instance are bags too."""
    bags, _ = sample_bags()
    singles = bags.singletons()
    Y = np.eye(3, dtype=np.int64)[singles.instance_info["label"]]
    estimator.fit(singles, Y)
    assert estimator.predict(singles).shape == Y.shape


def check_bags_empty(estimator: MIMLClassifier) -> None:
    """An empty bag is taken or refused by its name."""
    bags, Y = sample_bags()
    estimator.fit(bags, Y)
    ids = np.array([f"bag-{i}" for i in range(3)])
    offsets = np.array([0, 2, 2, 4])
    holed = Bags(bags.X[:4], offsets, bag_ids=ids)
    if estimator.traits.empty_bags:
        assert np.isfinite(estimator.decision_function(holed)).all(), (
            "an empty bag gets NaN or infinite scores"
        )
    else:
        _assert_refuses(lambda: estimator.predict(holed), "bag-1")


def check_bags_bad_values(estimator: MIMLClassifier) -> None:
    """NaN is refused with the name of the bag, a wrong width with both numbers."""
    bags, Y = sample_bags()
    spoiled = bags.X.copy()
    spoiled[bags.offsets[7], 0] = np.nan
    named = Bags(spoiled, bags.offsets, bag_ids=[f"bag-{i}" for i in range(len(bags))])
    _assert_refuses(lambda: clone(estimator).fit(named, Y), "bag-7")
    estimator.fit(bags, Y)
    _assert_refuses(lambda: estimator.predict(bags[:, :2]), "features")
    _assert_refuses(lambda: clone(estimator).fit(bags, Y[:-1]), "40")


# ---------------------------------------------------------------------- what comes out


def check_bags_output_shapes(estimator: MIMLClassifier) -> None:
    """Every method of the contract returns what the contract says."""
    bags, Y = sample_bags()
    estimator.fit(bags, Y)
    scores = estimator.decision_function(bags)
    assert scores.shape == Y.shape and np.issubdtype(scores.dtype, np.floating)
    P = estimator.predict(bags)
    assert P.dtype == Y.dtype, f"predict gives {P.dtype}, the training labels were {Y.dtype}"
    both = estimator.scores_and_labels(bags)
    assert_array_equal(both[1], P, err_msg="predict and scores_and_labels decide differently")
    if type(estimator)._predict is MIMLClassifier._predict:
        assert_array_equal(P, scores > 0, err_msg="predict is not decision_function > 0")
    F = estimator.instance_scores(bags)
    assert F.shape == (bags.n_instances, 3)
    keys = estimator.key_instances(bags, k=2)
    assert keys.shape == (len(bags), 3, 2)
    inside = (keys >= bags.offsets[:-1, None, None]) & (keys < bags.offsets[1:, None, None])
    assert (inside | (keys == -1)).all(), "a key instance lies outside its bag"
    assert ((keys == -1)[:, 0, 1] == (bags.sizes < 2)).all(), "-1 must mark bags with too few instances"
    assert hasattr(estimator, "predict_proba") == estimator.traits.probabilities
    if estimator.traits.probabilities:
        proba = estimator.predict_proba(bags)
        assert proba.shape == Y.shape and (proba >= 0).all() and (proba <= 1).all()
    assert_array_equal(estimator.classes_, np.tile([0, 1], (3, 1)))


def check_bags_annotate(estimator: MIMLClassifier) -> None:
    """Annotation stays within the labels, and within the bag's set when that is known."""
    bags, Y = sample_bags()
    estimator.fit(bags, Y)
    free = estimator.annotate(bags)
    assert free.shape == (bags.n_instances,) and ((free >= -1) & (free < 3)).all()
    Y_known = Y.copy()
    Y_known[0] = 0
    bound = estimator.annotate(bags, Y_known)
    has = bound >= 0
    assert Y_known[bags.index[has], bound[has]].all(), "a label outside the bag's set"
    assert (bound[bags.index == 0] == -1).all(), "a bag without labels has no labelled instance"
    if estimator.traits.probabilities:
        labels, Q = estimator.annotate(bags, Y_known, return_proba=True)
        assert_array_equal(labels, bound)
        assert (Q[Y_known[bags.index] == 0] == 0).all(), "probability outside the bag's set"
        assert (Q.sum(axis=1) <= 1 + 1e-9).all()


def check_bags_same_seed(estimator: MIMLClassifier) -> None:
    """The same seed gives the same model, whatever the number of threads."""
    import numba

    bags, Y = sample_bags()
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    threads = numba.get_num_threads()
    try:
        first = clone(estimator).fit(bags, Y).decision_function(bags)
        numba.set_num_threads(1)
        second = clone(estimator).fit(bags, Y).decision_function(bags)
    finally:
        numba.set_num_threads(threads)
    assert_allclose(
        second, first, rtol=1e-6, atol=1e-9, err_msg="the result depends on the number of threads"
    )


def check_bags_pickle_and_clone(estimator: MIMLClassifier) -> None:
    """A pickled model predicts the same; a clone knows nothing of the fit."""
    bags, Y = sample_bags()
    estimator.fit(bags, Y)
    again = pickle.loads(pickle.dumps(estimator))
    assert_array_equal(again.predict(bags), estimator.predict(bags))
    assert not hasattr(clone(estimator), "classes_")


def check_bags_beats_chance(estimator: MIMLClassifier) -> None:
    """On well-separated instances a model that claims to learn does; the dummy declares that it does not."""
    from sklearn.utils import get_tags

    if get_tags(estimator).classifier_tags.poor_score:
        return
    bags, Y = sample_bags(n_bags=80)
    estimator.fit(bags[:60], Y[:60])
    wrong = (estimator.predict(bags[60:]) != Y[60:]).mean()
    assert wrong < 0.25, f"Hamming loss {wrong:.2f} on bags that are easy to tell apart"


def _assert_refuses(call: Callable[[], Any], word: str) -> None:
    try:
        call()
    except (ValueError, TypeError) as error:
        assert word in str(error), f"the error does not mention {word!r}: {error}"
    else:
        raise AssertionError(f"bad input was taken without an error (expected one that mentions {word!r})")
