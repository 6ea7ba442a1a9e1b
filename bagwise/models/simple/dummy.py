"""The dummy: what can be had without looking at a single instance."""

from __future__ import annotations

import numpy as np

from bagwise.base import MIMLClassifier, Traits


class MIMLDummy(MIMLClassifier):
    """Answer every bag with how often labels occur in training.

    The floor of every table: a method that does not beat it has learned nothing from instances.

    Attributes
    ----------
    frequency_ : ndarray of shape (n_labels,)
        Share of training bags that carry each label.

    Notes
    -----
    A label is predicted if it occurs in more than half of the training bags (exactly half is not
    predicted), which no other constant label set beats in Hamming loss on the training bags. Every
    instance gets the most frequent label, within the bag's set when that is known; among equals the
    lowest index wins. The frequency is that of bags: instance labels are not known in training.

    References
    ----------
    .. [1] A. T. Pham, R. Raich, X. Z. Fern: Dynamic programming for instance annotation in
       multi-instance multi-label learning. IEEE TPAMI 39(12), 2017. The baseline "Dummy".

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise import Bags
    >>> bags = Bags.from_list([np.ones((2, 1)), np.ones((1, 1)), np.ones((3, 1))])
    >>> model = MIMLDummy().fit(bags, [[1, 0], [1, 1], [1, 0]])
    >>> model.predict(bags[:1])
    array([[1, 0]])
    >>> model.predict_proba(bags[:1]).round(2)
    array([[1.  , 0.33]])
    """

    traits = Traits(instances="model", probabilities=True, empty_bags=True, sample_weight=True)

    def _fit(self, bags, Y, weights):
        self.frequency_ = np.average(Y, axis=0, weights=weights)

    def _scores(self, bags):
        return self._probabilities(bags) - 0.5

    def _probabilities(self, bags):
        return np.tile(self.frequency_, (len(bags), 1))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags
