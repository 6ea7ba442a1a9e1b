"""The catalogue: one algorithm, one file."""

# Bounds that every table needs
from bagwise.models.dummy import MIMLDummy
from bagwise.models.single_instance import SingleInstanceLogisticRegression

# Which instance carries which label, exactly
from bagwise.models.ored_logistic import ORedLogisticRegression

# Many bags, many labels
from bagwise.models.mimlfast import MIMLFast

__all__ = ["MIMLDummy", "MIMLFast", "ORedLogisticRegression", "SingleInstanceLogisticRegression"]
