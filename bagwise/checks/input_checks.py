"""How data may come: types, layouts, empty bags, and what is refused by name."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

from bagwise.bags import Bags
from bagwise.base import MIMLClassifier
from bagwise.checks.sample import assert_refuses, fitted, sample_bags, thin_bags


def check_bags_list_of_arrays(estimator: MIMLClassifier) -> None:
    """A list of 2-D arrays is as good as a Bags."""
    model, bags, _ = fitted(estimator)
    assert_array_equal(model.predict(list(bags)), model.predict(bags))


def check_bags_sparse(estimator: MIMLClassifier) -> None:
    """CSR instances train the same model as the same dense ones, few zeros or many, and get its scores."""
    if not estimator.traits.sparse:
        _, as_csr, Y = thin_bags()
        assert_refuses(lambda: estimator.fit(as_csr, Y), "sparse")
        return
    for n_empty_columns in (0, 60):
        dense, as_csr, Y = thin_bags(n_empty_columns)
        model = clone(estimator).fit(dense, Y)
        expected = model.decision_function(dense)
        message = "the same bags as CSR get other scores"
        assert_allclose(model.decision_function(as_csr), expected, rtol=1e-5, atol=1e-6, err_msg=message)
        from_csr = clone(estimator).fit(as_csr, Y).decision_function(as_csr)
        message = f"training on CSR differs from training on the same dense bags ({n_empty_columns} zeros)"
        assert_allclose(from_csr, expected, rtol=1e-3, atol=1e-4, err_msg=message)


def check_bags_float32(estimator: MIMLClassifier) -> None:
    """Single precision gives nearly the same scores as double precision, in training as in prediction."""
    model, bags, Y = fitted(estimator)
    single = Bags(bags.X.astype(np.float32), bags.offsets, instance_info=bags.instance_info)
    expected = model.decision_function(bags)
    assert_allclose(model.decision_function(single), expected, rtol=1e-2, atol=1e-3)
    from_single = clone(estimator).fit(single, Y).decision_function(single)
    message = "training in single precision differs from training in double precision"
    assert_allclose(from_single, expected, rtol=2e-2, atol=2e-2, err_msg=message)


def check_bags_read_only(estimator: MIMLClassifier) -> None:
    """Memory that cannot be written, as of a memory map, is no obstacle, and nothing is written to it."""
    for layout in ["dense", "csr"] if estimator.traits.sparse else ["dense"]:
        bags, Y = sample_bags(n_bags=20)
        if layout == "csr":
            bags = Bags(sparse.csr_array(bags.X), bags.offsets, instance_info=bags.instance_info)
        values = [bags.X.data, bags.X.indices, bags.X.indptr] if layout == "csr" else [bags.X]
        arrays = [*values, bags.offsets, Y, bags.instance_info["label"]]
        before = [array.copy() for array in arrays]
        for array in arrays:
            array.setflags(write=False)
        model = clone(estimator).fit(bags, Y)
        model.predict(bags)
        model.instance_scores(bags)
        model.annotate(bags, Y)
        for array, copy in zip(arrays, before):
            assert_array_equal(array, copy, err_msg="the caller's arrays were changed")
            assert not array.flags.writeable, "the flags of the caller's arrays were changed"


def check_bags_single_instances(estimator: MIMLClassifier) -> None:
    """Bags of one instance are bags too."""
    bags, _ = sample_bags()
    singles = bags.singletons()
    Y = np.eye(3, dtype=np.int64)[singles.instance_info["label"]]
    estimator.fit(singles, Y)
    assert estimator.predict(singles).shape == Y.shape


def check_bags_empty(estimator: MIMLClassifier) -> None:
    """An empty bag is taken or refused by its name."""
    model, bags, _ = fitted(estimator)
    ids = np.array([f"bag-{i}" for i in range(3)])
    holed = Bags(bags.X[:4], np.array([0, 2, 2, 4]), bag_ids=ids)
    if model.traits.empty_bags:
        scores = model.decision_function(holed)
        assert np.isfinite(scores).all(), "an empty bag gets NaN or infinite scores"
    else:
        assert_refuses(lambda: model.predict(holed), "bag-1")


def check_bags_bad_values(estimator: MIMLClassifier) -> None:
    """NaN is refused with the name of the bag, a wrong width or no label at all with the numbers."""
    model, bags, Y = fitted(estimator)
    spoiled = bags.X.copy()
    spoiled[bags.offsets[7], 0] = np.nan
    named = Bags(spoiled, bags.offsets, bag_ids=[f"bag-{i}" for i in range(len(bags))])
    assert_refuses(lambda: clone(estimator).fit(named, Y), "bag-7")
    assert_refuses(lambda: model.predict(bags[:, :2]), "features")
    assert_refuses(lambda: clone(estimator).fit(bags, Y[:-1]), "40")
    assert_refuses(lambda: clone(estimator).fit(bags, Y[:, :0]), "no labels to learn from")
