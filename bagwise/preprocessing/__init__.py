"""Bags to bags, or bags to a table: transformers for pipelines."""

from bagwise.preprocessing.on_instances import OnInstances
from bagwise.preprocessing.pooling import BagPooling, bag_statistics
from bagwise.preprocessing.rbf_dictionary import RBFDictionary

__all__ = ["BagPooling", "OnInstances", "RBFDictionary", "bag_statistics"]
