"""DeepMIML: networks for bags under the same contract as every other model."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from bagwise.base import MIMLClassifier, Traits
from bagwise.base._classifier import check_piece, pieces_of_shards
from bagwise.base.blocks import Blocks, is_sharded
from bagwise.base.parameters import Choice, Device, Flag, Number, Seed, Whole, check_parameters
from bagwise.compute.devices import load_torch
from bagwise.models.deep.tune import POOLINGS, chosen_device

_LOSSES = ("bce", "ranking+bce", "ranking+asymmetric", "ranking", "asymmetric")


class DeepMIML(MIMLClassifier):
    r"""An ensemble of small networks: encoder of instances, a head that makes bags of them.

    Needs torch (``pip install 'bagwise[torch]'``). Every member leaves out another fifth of the bags, stops
    when these are scored best, and answers for them; from these answers a sigmoid per label is learned, so
    that probabilities are calibrated without bags set aside.

    Parameters
    ----------
    head : {"attention", "instance", "pool", "prototype", "transformer"}, default="attention"
        What turns encoded instances into scores of bags; see Notes.
    n_members : int, default=5
        Networks whose scores are averaged.
    hidden : int, default=256
        Units of each layer of the encoder.
    depth : int, default=2
        Layers of the encoder.
    dropout : float, default=0.5
        Share of units left out at random in training.
    pooling : str, default="auto"
        How the head pools: for "pool" "all" (default), "mean", "max" or "lse"; for "instance" "linear"
        (default) or "power"; for "prototype" "lse" (default) or "max".
    loss : {"bce", "ranking+bce", "ranking+asymmetric", "ranking", "asymmetric"}, default="bce"
        What training lowers; see ``docs/deep.md`` for what the others gave.
    learning_rate : float or "auto", default="auto"
        Of AdamW; "auto" is 1e-3 for the transformer, which comes apart at more, and 6e-3 for the others.
    weight_decay : float, default=1e-2
        Of AdamW.
    batch_size : int or "auto", default="auto"
        Bags per step; "auto" is a sixteenth of the bags, 16 at least and 1,024 at most (on a GPU
        from a million instances on 16,384).
    max_epochs : int, default=150
        Limit on passes.
    patience : int, default=10
        Passes without a better loss on the bags held out after which a member stops.
    unions : float or "auto", default="auto"
        Share of the training bags that are joined with another bag, drawn anew in every pass, and carry the
        labels of both: a label that some instance of a bag causes is caused by it in a larger bag too. "auto"
        is one half up to 10,000 bags, none beyond.
    refit : bool, default=True
        Whether every member goes on with all bags at last, for a fifth of the passes that the bags held out
        asked for.
    scaling : {"standard", "none"}, default="standard"
        Whether features get mean 0 and spread 1 (text: one factor for all).
    device : {"auto", "cpu", "cuda", "cuda:0", ...}, default="auto"
        Where networks work; "auto" takes a GPU if there is one. The fitted model holds arrays and predicts
        on any device.
    mixed_precision : bool or "auto", default="auto"
        Whether products are computed in bfloat16; "auto": on a GPU, from 100,000 instances.
    random_state : int, RandomState or None, default=None
        Seed of weights, order of bags and parts.
    verbose : bool, default=False
        Whether to draw a progress bar on a terminal.

    Attributes
    ----------
    members_ : list of dict
        Weights of every member by name, as arrays.
    epochs_ : list of int
        The pass that each member's weights are of.
    histories_ : list of ndarray
        Loss on the bags held out, after every pass.
    calibration_slope_, calibration_intercept_ : ndarray of shape (n_labels,)
        Log-odds of a label are ``slope * mean score of the members + intercept``.

    Notes
    -----
    With encodings :math:`h_i` of the instances:

    - "attention": :math:`z_l = \sum_i a_{il} s_{il}`, gated attention per label in additive form;
    - "instance": pooled probabilities of instances (linear softmax or a learned power);
    - "pool": linear scores of mean, maximum and log-sum-exp of the encodings;
    - "prototype": nearness to learned directions per label, the nearest instance decides;
    - "transformer": instances look at each other first, then as "attention".

    **What instance scores mean.** For "attention" and "transformer" they are contributions: those of the
    instances of a bag add up to the score of the bag. For "instance" and "prototype" they are the log-odds of
    the instance itself. For "pool" they are the score of a bag with this instance alone. `annotate` always
    compares the scores that bags of one instance would get: a contribution says how much of *this* bag's
    score an instance brings, which is small for the fifth wren of a recording. None of these says what
    *caused* a label in the world; ``docs/deep.md`` shows which head keeps the multi-instance assumption and
    which learns from what is absent.

    Labels that are not known may be given as NaN in a float matrix: they are left out of the loss.

    **On shards** the members are trained side by side: a pass reads every part once, in an order drawn anew,
    and half of a part is learned with half of the part before it. Unions join bags of these two. The bags
    that members hold out are drawn from all parts; as many as 256 MB hold stay in memory. Shards of one part
    are learned as bags in memory. A `bagwise.checkpoint` keeps what the members have come to after a pass.

    References
    ----------
    .. [1] M. Ilse, J. Tomczak, M. Welling: Attention-based deep multiple instance learning. ICML 2018.
    .. [2] S. A. Javed et al.: Additive MIL: intrinsically interpretable multiple instance learning for
       pathology. NeurIPS 2022.
    .. [3] J. Lee et al.: Set transformer. ICML 2019.
    .. [4] T. Ridnik et al.: Asymmetric loss for multi-label classification. ICCV 2021.

    Examples
    --------
    >>> import pytest
    >>> torch = pytest.importorskip("torch")
    >>> from bagwise import load_dataset
    >>> data = load_dataset("digits", n_bags=150)
    >>> model = DeepMIML(n_members=2, max_epochs=30, random_state=0).fit(data.bags[:100], data.Y[:100])
    >>> bool((model.predict(data.bags[100:]) == data.Y[100:]).mean() > 0.85)
    True
    >>> contributions = model.instance_scores(data.bags[:1])
    >>> bool(np.allclose(contributions.sum(axis=0), model.decision_function(data.bags[:1])))
    True
    """

    traits = Traits(
        instances="model",
        probabilities=True,
        label_equivariant=False,
        sample_weight=True,
        missing_labels=True,
        device=("cpu", "cuda"),
        requires=("torch",),
        shards=True,
    )

    _parameters = {
        "head": Choice(*POOLINGS),
        "n_members": Whole(1),
        "hidden": Whole(1),
        "depth": Whole(1),
        "dropout": Number(0, below=1),
        "pooling": Choice("auto", *sorted({kind for kinds in POOLINGS.values() for kind in kinds})),
        "loss": Choice(*_LOSSES),
        "learning_rate": (Choice("auto"), Number(above=0)),
        "weight_decay": Number(0),
        "batch_size": (Choice("auto"), Whole(1)),
        "max_epochs": Whole(1),
        "patience": Whole(1),
        "unions": (Choice("auto"), Number(0, 1)),
        "refit": Flag(),
        "scaling": Choice("standard", "none"),
        "device": Device(),
        "mixed_precision": (Choice("auto"), Flag()),
        "random_state": Seed(),
        "verbose": Flag(),
    }

    def __init__(
        self,
        head: str = "attention",
        n_members: int = 5,
        *,
        hidden: int = 256,
        depth: int = 2,
        dropout: float = 0.5,
        pooling: str = "auto",
        loss: str = "bce",
        learning_rate: float | str = "auto",
        weight_decay: float = 1e-2,
        batch_size: int | str = "auto",
        max_epochs: int = 150,
        patience: int = 10,
        unions: float | str = "auto",
        refit: bool = True,
        scaling: str = "standard",
        device: str = "auto",
        mixed_precision: bool | str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.head = head
        self.n_members = n_members
        self.hidden = hidden
        self.depth = depth
        self.dropout = dropout
        self.pooling = pooling
        self.loss = loss
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.unions = unions
        self.refit = refit
        self.scaling = scaling
        self.device = device
        self.mixed_precision = mixed_precision
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        few = {"n_members": 1, "hidden": 16, "max_epochs": 25}
        return few | {"batch_size": 32, "learning_rate": 0.01, "random_state": 0}

    @classmethod
    def _expected_failed_checks(cls) -> dict[str, str]:
        reason = "batches and parts are drawn from the bags that are there: a weight of 2 is not two bags"
        names = (
            "check_sample_weight_equivalence_on_dense_data",
            "check_sample_weight_equivalence_on_sparse_data",
        )
        return dict.fromkeys(names, reason)

    # ------------------------------------------------------------------ learning

    def _fit(self, bags: Any, Y: np.ndarray, *weights: Any) -> None:
        load_torch("DeepMIML")
        from bagwise.models.deep.fit import learn

        learn(self, bags, Y, *weights)

    def _fit_blocks(self, blocks: Blocks) -> None:
        """Learn from shards; one part is learned as bags in memory."""
        if len(blocks) == 1:
            return self._fit(*blocks.only()[:2])
        load_torch("DeepMIML")
        from bagwise.models.deep.fit import learn_from_parts

        learn_from_parts(self, blocks)

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None) -> Any:
        """Learn from one more piece of data.

        The first piece is learned as by ``fit`` and fixes labels, scaling and shape; every later one in one
        pass by each member, which goes on where it was: the memory of its optimiser is kept, also by
        `bagwise.save`. Pieces are scored before they are learned, and once there are 200 such bags,
        probabilities are calibrated on the latest 2,000 of them.

        Parameters
        ----------
        X : Bags, list of 2-D arrays, table, or ShardedBags
            The bags of this piece; of shards every part is one.
        y : labels as in ``fit``
            Their labels; left out for shards, which carry them inside.
        classes : array, optional
            All classes, when ``y`` is 1-D and the first piece may not show them all.

        Returns
        -------
        self
        """
        check_parameters(self, self._parameters)
        first = not hasattr(self, "members_")
        if first and is_sharded(X):
            return self.fit(X, y)
        load_torch("DeepMIML")
        from bagwise.models.deep.fit import go_on, learn

        if is_sharded(X):
            for bags, Y in pieces_of_shards(self, X, y):
                go_on(self, bags, Y)
            return self
        bags, Y = check_piece(self, X, y, classes, first=first)
        if first:
            learn(self, bags, Y, more_to_come=True)
        else:
            go_on(self, bags, Y)
        return self

    # ------------------------------------------------------------------ predicting

    def _mean_scores(self, bags: Any, what: str) -> np.ndarray:
        """Mean over members of what a network says: "forward", "instances" or "alone"."""
        load_torch("DeepMIML")
        from bagwise.models.deep.fit import plan_of
        from bagwise.models.deep.predict import mean_scores

        device = chosen_device(self.device, bags.n_instances * self.n_features_in_)
        return mean_scores(plan_of(self), self.members_, self._scaling, bags, what, device)

    def _scores(self, bags: Any) -> np.ndarray:
        return self._mean_scores(bags, "forward") * self.calibration_slope_ + self.calibration_intercept_

    def _probabilities(self, bags: Any) -> np.ndarray:
        return expit(self._scores(bags))

    def _instance_scores(self, bags: Any) -> np.ndarray:
        said = self._mean_scores(bags, "instances") * self.calibration_slope_
        if self.head in ("attention", "transformer"):  # shares of the intercept, so that they add up
            return said + self.calibration_intercept_ / bags.sizes[bags.index][:, None]
        return said + self.calibration_intercept_

    def _annotation_scores(self, bags: Any) -> np.ndarray:
        """Scores that bags of one instance would get; contributions depend on the other instances."""
        return self._mean_scores(bags, "alone") * self.calibration_slope_ + self.calibration_intercept_

    def _instance_probabilities(self, bags: Any, Y: np.ndarray | None) -> np.ndarray:
        P = expit(self._annotation_scores(bags))
        if Y is not None:
            P = np.where(Y[bags.index] > 0, np.maximum(P, 1e-300), 0.0)
        total = P.sum(axis=1, keepdims=True)
        return np.divide(P, total, out=np.zeros_like(P), where=total > 0)
