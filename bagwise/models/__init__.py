"""The catalogue: one algorithm, one file."""

# Bounds that every table needs
from bagwise.models.dummy import MIMLDummy

# Which instance carries which label
from bagwise.models.ored_logistic import ORedLogisticRegression
from bagwise.models.single_instance import SingleInstanceLogisticRegression

__all__ = ["MIMLDummy", "ORedLogisticRegression", "SingleInstanceLogisticRegression"]
