"""The catalogue: one algorithm, one file."""

# Bounds that every table needs
from bagwise.models.dummy import MIMLDummy
from bagwise.models.single_instance import SingleInstanceLogisticRegression

__all__ = ["MIMLDummy", "SingleInstanceLogisticRegression"]
