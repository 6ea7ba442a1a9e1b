"""How ORed logistic regression learns: counts of the bags, scaling, and the climb of the likelihood."""

from __future__ import annotations

from functools import partial

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from bagwise.base.blocks import blocks_in_memory
from bagwise.compute.parts import map_reduce
from bagwise.compute.scaling import scaling_of
from bagwise.compute.threads import small_products, threads
from bagwise.errors import DataError, quoted, warn
from bagwise.models._shared.instance_softmax import NEVER, InstanceSoftmaxClassifier, product_size
from bagwise.models.ored.choose import choose
from bagwise.models.ored.em import climb_em
from bagwise.models.ored.likelihood import climb_lbfgs
from bagwise.models.ored.parts import (
    Setup,
    SummedLikelihood,
    Treatment,
    card_of,
    count_bags,
    joined_counts,
    prepared,
    rows,
    scaled_rows,
    usable,
)
from bagwise.preprocessing.rbf_dictionary import RBFDictionary


class ORedLearner(InstanceSoftmaxClassifier):
    """Learns from blocks of bags; the parameters are those of `ORedLogisticRegression`."""

    def _fit(self, bags, Y, weights, known=None):
        blocks = blocks_in_memory(bags, Y, weights, known)
        card = card_of(self._fit_device, bags)
        if card is not None:
            from bagwise.models._shared.gpu import Instances
            from bagwise.models.ored.card import CardBlocks

            blocks = CardBlocks(blocks.only(), Instances(bags.X, card))
        self._fit_blocks(blocks)

    @property
    def _fit_device(self):
        """Where sums over bags are made: the card knows one way to climb and one algorithm."""
        elsewhere = self.solver == "lbfgs" and self.kernel is None and self.inference == "auto"
        return self.device if elsewhere else "cpu"

    def _fit_blocks(self, blocks):
        if self.subset < 1 and self.solver != "em":
            raise ValueError("subset < 1 draws bags for each iteration of solver='em'; choose that solver")
        if self.bag_probability == "score" and (self.decision == "union" or self._target == "multiclass"):
            raise ValueError(
                "bag_probability='score' is no probability before it is calibrated, which decision='union' "
                "and classes in a 1-D y do not do; choose 'auto', 'noisy_or' or 'max'"
            )
        if blocks.streamed or len(blocks) > 1:
            self._check_sums()
        setting, calibration, self.held_out_loss_ = choose(self, blocks)
        self.alpha_, self.background_, self.bag_probability_ = setting
        self.has_background_ = bool(self.background_)
        self._learn(blocks)
        self.decision_slope_ = self.decision_intercept_ = None
        if calibration is not None and self._target != "multiclass":
            self.decision_slope_, self.decision_intercept_ = calibration

    def _check_sums(self):
        """Refuse settings that look at all bags at once."""
        for name, value in (("solver", "lbfgs"), ("kernel", None), ("prune", 0.0)):
            if getattr(self, name) != value:
                given = f"{name}={getattr(self, name)!r}"
                raise ValueError(f"{given} needs all bags at once; on shards leave it at {value!r}")

    def _learn(self, blocks):
        """Climb the likelihood of the bags under the setting chosen."""
        how = self._treatment
        counts = map_reduce(count_bags, how, blocks, joined_counts)
        self._report_unusable(counts)
        rng = check_random_state(self.random_state)
        plain = counts["range"][0] == counts["range"][1]
        scaling, dictionary = self._prepare(blocks, partial(rows, how, plain), rng)
        seen = np.flatnonzero(counts["carried"] > 0)
        classes = np.append(seen, blocks.n_labels) if self.has_background_ else seen
        setup = Setup(how, classes, scaling, dictionary, self.fit_intercept, self._fit_device)
        parts = prepared(blocks, setup)
        n_features = self.n_features_in_ if dictionary is None else len(dictionary.rows_)
        problem = SummedLikelihood(parts, (len(classes), n_features + 1), counts["weight"], self.alpha_)
        with self._products(parts, len(classes)):
            W, self.objective_ = self._climb(problem, rng)
        coef = np.zeros((blocks.n_labels + self.has_background_, n_features))
        intercept = np.full(len(coef), NEVER)  # a label that no training bag carries
        coef[classes], intercept[classes] = W[:, :-1], W[:, -1]
        if dictionary is None:
            coef, intercept = scaling.weights_as_given(coef, intercept)
        self.coef_, self.intercept_ = coef, intercept

    @property
    def _treatment(self):
        rules = self.max_labels, self.unusable_bags, self.prune
        return Treatment(self.background_, *rules, self._inference())

    @staticmethod
    def _products(parts, n_classes):
        """Keep small products to one thread; on shards all are, on a card there are none."""
        if parts.one_thread or not hasattr(parts.only(), "X"):
            return small_products(0.0)
        return small_products(product_size(parts.only().X, n_classes))

    def _report_unusable(self, counts):
        """Say how many bags were not taken exactly, or refuse them."""
        self.n_unusable_ = counts["n_unusable"]
        if self.n_unusable_:
            message = (
                f"{counts['n_impossible']} bags carry label sets that no labelling of their instances can "
                f"produce, {counts['n_over']} more than max_labels={self.max_labels} labels "
                f"(first: bag {quoted(counts['first'][0])})"
            )
            if self.unusable_bags == "error":
                raise DataError(f"{message}; see the parameter unusable_bags")
            treatment = "left out" if self.unusable_bags == "drop" else "used as candidate sets"
            warn(f"{message}; {treatment}", UserWarning)
        if not counts["weight"]:
            raise DataError("no training bag is left: every label set is impossible, too large or pruned")

    def _prepare(self, blocks, weighted, rng):
        """How features are scaled and, with a kernel, its dictionary."""
        kind = "standard" if self.standardize else "none"
        if blocks.kind == "gpu":
            return blocks.scaling(kind, self._row_weights(blocks)), None
        instances = blocks.map(weighted)
        dtype = np.dtype(self._dtype_of(blocks))
        scaling = scaling_of(instances, kind, self.n_features_in_, dtype)
        if self.kernel is None:
            return scaling, None
        self._scaling = scaling
        dictionary = RBFDictionary(self.dictionary_size, scale=self.width_scale, random_state=rng)
        block = blocks.only()
        row_weights = usable(block, self._treatment).weights[block.bags.index]
        self.dictionary_ = dictionary.fit(scaled_rows(block, scaling)[row_weights > 0])
        self.dictionary_.random_state = None  # a generator cannot be stored; the sample is drawn
        return scaling, self.dictionary_

    def _row_weights(self, blocks):
        """Weights of all instances, None where all weigh the same."""
        weights = usable(blocks.block, self._treatment).weights
        full = weights[blocks.block.bags.sizes > 0]
        return None if full.min() == full.max() else np.repeat(weights, blocks.block.bags.sizes)

    @staticmethod
    def _dtype_of(blocks):
        return blocks.shards.dtype if blocks.kind == "shards" else blocks.only().bags.dtype

    def _climb(self, problem, rng):
        max_iter = self.max_iter or (1000 if self.solver == "lbfgs" else 50)
        W = np.zeros(problem.shape)
        if self.solver == "em":
            problem = problem.parts.only()
            problem.alpha = self.alpha_
            draw = None
            if self.subset < 1:
                n_drawn = max(1, round(self.subset * (problem.weights > 0).sum()))
                usable = np.flatnonzero(problem.weights > 0)

                def draw():
                    weights = np.zeros_like(problem.weights)
                    chosen = rng.choice(usable, n_drawn, replace=False)
                    weights[chosen] = problem.weights[chosen]
                    return weights

            W, history = climb_em(problem, max_iter=max_iter, tol=self.tol, draw=draw)
            self.n_iter_ = len(history) - (draw is None)
            return W, np.array(history)
        W, history = climb_lbfgs(problem, W, max_iter=max_iter, tol=self.tol)
        self.n_iter_ = len(history) - 1
        if self.n_iter_ >= max_iter:
            warn(
                f"stopped after {max_iter} iterations; raise max_iter or alpha",
                ConvergenceWarning,
            )
        return W, np.array(history)

    def _inference(self):
        return {
            "method": self.inference,
            # anywhere, the background counts as a label of every bag
            "max_labels": self.max_labels + (self.background_ == "anywhere"),
            "n_threads": threads(self.n_jobs),
        }
