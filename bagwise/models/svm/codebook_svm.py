"""Bags of words: counts of the nearest k-means centres, then a support vector machine per label."""

from __future__ import annotations

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bagwise.base import Traits
from bagwise.base.parameters import Choice, Seed, Whole
from bagwise.models.svm.base import (
    MACHINES,
    ScaledClassifier,
    gram,
    learn_codebook,
    machines_on,
    nearest_word,
    resolve_gamma,
)


class CodebookSVM(ScaledClassifier):
    r"""Describe a bag by how its instances spread over k-means clusters, and learn each label by an SVM.

    Parameters
    ----------
    n_words : int or "auto", default="auto"
        Number of clusters; at most the number of training instances. "auto" is a tenth of that number, but
        at least 10 and at most 100: with more words than that, bags have few in common. Try 10 to 500.
    kernel : {"rbf", "linear"}, default="rbf"
        Kernel between the shares of clusters.
    gamma : float or "scale", default="scale"
        Of the kernel "rbf", ``exp(-gamma |h - h'|^2)``; "scale" is one over the number of words and the
        variance of the shares.
    C : float, default=1.0
        Penalty of errors; try 1 to 100.
    scaling : {"standard", "minmax", "l2", "none"}, default="standard"
        What is done to instances first: features with mean 0 and variance 1 over the training instances
        (sparse ones are divided by one spread, not moved), features divided by their range, instances
        divided by their length, or nothing.
    n_init : int, default=1
        Starts of k-means.
    max_iter : int, default=300
        Limit on the iterations of k-means.
    n_jobs : int, optional
        Labels learned at a time, and threads of k-means.
    random_state : int, RandomState instance or None, default=None
        Seed of k-means.

    Attributes
    ----------
    words_ : ndarray of shape (n_words, n_features)
        Centres, in scaled features; fewer than asked for where training instances are fewer or equal.
    support_ : ndarray of shape (n_support,)
        Numbers of the training bags that are support vectors of some label.
    support_histograms_ : ndarray of shape (n_support, n_words)
        Their shares of words.
    dual_coef_ : ndarray of shape (n_support, n_labels)
        Their weights.
    intercept_ : ndarray of shape (n_labels,)
        Constants of the machines.
    gamma_ : float
        The gamma that was used.
    constant_scores_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. It is the
        score of such a label everywhere.
    n_iter_ : int
        Iterations of k-means.

    Notes
    -----
    The share of word k in a bag is the number of its instances whose nearest word is k, over the number of
    its instances. The words are learned on training instances alone and shared by all labels.

    *Differences from* [1]_: instances come as they are given, not from key points of images; words and
    machine are those of scikit-learn. Words that no training instance is nearest to are left out.

    References
    ----------
    .. [1] G. Csurka, C. R. Dance, L. Fan, J. Willamowski, C. Bray: Visual categorization with bags of
       keypoints. ECCV Workshop on Statistical Learning in Computer Vision, 2004.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=120, random_state=0)
    >>> model = CodebookSVM(n_words=20, random_state=0).fit(data.bags, data.Y)
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.8)
    True
    >>> model.histograms(data.bags).shape
    (120, 20)
    """

    traits = Traits(instances="singleton")

    _parameters = {
        "n_words": (Choice("auto"), Whole(1)),
        **MACHINES,
        "n_init": Whole(1),
        "max_iter": Whole(1),
        "random_state": Seed(),
    }

    def __init__(
        self,
        n_words="auto",
        *,
        kernel="rbf",
        gamma="scale",
        C=1.0,
        scaling="standard",
        n_init=1,
        max_iter=300,
        n_jobs=None,
        random_state=None,
    ):
        self.n_words = n_words
        self.kernel = kernel
        self.gamma = gamma
        self.C = C
        self.scaling = scaling
        self.n_init = n_init
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def _test_params(cls):
        return {"n_words": 15, "random_state": 0}

    def _learn(self, X, offsets, Y):
        n_words = min(max(X.shape[0] // 10, 10), 100) if self.n_words == "auto" else self.n_words
        self.words_, self.n_iter_ = learn_codebook(
            X,
            n_words,
            self.random_state,
            n_init=self.n_init,
            max_iter=self.max_iter,
            n_jobs=self.n_jobs,
        )
        H = self._histograms(X, offsets)
        self.gamma_ = resolve_gamma(self.gamma, H, whole=True)
        K = gram(self.kernel, self.gamma_, H, H)
        self.support_, self.dual_coef_, self.intercept_ = machines_on(K, Y, self.C, self.n_jobs)
        self.support_histograms_ = H[self.support_]
        self._width = len(self.words_) + len(self.support_)

    def _histograms(self, X, offsets):
        n_bags, n_words = len(offsets) - 1, len(self.words_)
        sizes = np.diff(offsets)
        cells = np.repeat(np.arange(n_bags), sizes) * n_words + nearest_word(X, self.words_, self.n_jobs)
        return np.bincount(cells, minlength=n_bags * n_words).reshape(n_bags, n_words) / sizes[:, None]

    def _score(self, X, offsets):
        K = gram(self.kernel, self.gamma_, self._histograms(X, offsets), self.support_histograms_)
        return K @ self.dual_coef_ + self.intercept_

    def histograms(self, X):
        """Shares of the words among the instances of every bag.

        Returns
        -------
        ndarray of shape (n_bags, n_words)
        """
        check_is_fitted(self)
        return np.concatenate(self._in_blocks(self._histograms, self._as_bags(X, reset=False)))
