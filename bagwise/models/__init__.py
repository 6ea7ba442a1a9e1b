"""The catalogue: one algorithm, one file."""

# Bounds that every table needs
from bagwise.models.dummy import MIMLDummy
from bagwise.models.single_instance import SingleInstanceLogisticRegression

# Which instance carries which label, exactly
from bagwise.models.ored_logistic import ORedLogisticRegression

# Many bags, many labels
from bagwise.models.mimlfast import MIMLFast

# Probabilities with error bars, and how labels go together
from bagwise.models.miml_gp import MIMLGP

# Several views, some missing
from bagwise.models.mimlmix import MIMLMix

__all__ = [
    "MIMLGP",
    "MIMLDummy",
    "MIMLFast",
    "MIMLMix",
    "ORedLogisticRegression",
    "SingleInstanceLogisticRegression",
]
