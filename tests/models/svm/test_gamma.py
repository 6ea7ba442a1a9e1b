"""The width "scale" of kernels between instances: differences alone count."""

import numpy as np
import pytest
from scipy import sparse
from toy_bags import planted

from bagwise.models import CSMISVM, DMIMLSVM, M3MIML, MILES, MILIS, MISVM, MIGraph, MIMLBoost, SetKernelSVM
from bagwise.models.svm.base import resolve_gamma

MACHINES = [CSMISVM, DMIMLSVM, M3MIML, MILES, MILIS, MISVM, MIGraph, SetKernelSVM]


def test_variances_of_features_by_hand():
    X = np.array([[0.0, 7.0, 1.0], [4.0, 7.0, 0.0], [2.0, 7.0, 0.0]])
    variances = [np.mean((x - x.mean()) ** 2) for x in X.T]
    for same in (X, sparse.csr_array(X)):
        np.testing.assert_allclose(resolve_gamma("scale", same), 1.0 / sum(variances))
        np.testing.assert_allclose(resolve_gamma("scale", same, whole=True), 1.0 / (3 * X.var()))
    assert resolve_gamma("scale", np.ones((3, 2))) == 1.0 and resolve_gamma(0.25, X) == 0.25


@pytest.mark.parametrize("scaling", ["minmax", "standard"])
@pytest.mark.parametrize("cls", [*MACHINES, MIMLBoost], ids=lambda cls: cls.__name__)
def test_a_year_among_the_features_changes_nothing(cls, scaling):
    """Features divided by their range are not moved; what all of them share must not count as spread."""
    bags, y, _ = planted(40, noise=1.0)
    later = bags.with_X(bags.X + np.array([0.0, 0.0, 2048.0]))
    settings = {"gamma": "scale", "scaling": scaling} | ({"random_state": 0} if cls is MIMLBoost else {})
    S = cls(**settings).fit(bags, y).decision_function(bags)
    moved = cls(**settings).fit(later, y).decision_function(later)
    np.testing.assert_allclose(moved, S, atol=1e-3 * np.abs(S).max())
