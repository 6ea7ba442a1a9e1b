"""The contract: what every estimator of bagwise takes and gives.

``MIMLClassifier`` writes all public methods once. An algorithm provides ``_fit(bags, Y)`` and
``_scores(bags)``, and ``_instance_scores(bags)`` when it has a real model of instances.
"""

from bagwise.base._classifier import MIMLClassifier, best_labels, best_rows
from bagwise.base._fits import fit_several
from bagwise.base._input import NO_LABEL, BagTransformer, Traits, is_list_of_bags, refuse_non_finite
from bagwise.base.blocks import Block, Blocks, blocks_in_memory, blocks_of_shards

__all__ = [
    "NO_LABEL",
    "BagTransformer",
    "Block",
    "Blocks",
    "MIMLClassifier",
    "Traits",
    "best_labels",
    "best_rows",
    "blocks_in_memory",
    "blocks_of_shards",
    "fit_several",
    "is_list_of_bags",
    "refuse_non_finite",
]
