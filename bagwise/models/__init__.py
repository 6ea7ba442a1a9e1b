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

# Distances between bags: the baselines of MIML papers
from bagwise.models.miml_knn import MIMLKNN
from bagwise.models.miml_nn import MIMLNN
from bagwise.models.miml_rbf import MIMLRBF
from bagwise.models.miml_svm import MIMLSVM

# Binary concepts with many faces, and one label against the rest
from bagwise.models.mm_mil import MMMIL, select_n_clusters
from bagwise.models.one_vs_rest import OneVsRestMIL

__all__ = [
    "MIMLGP",
    "MIMLKNN",
    "MIMLNN",
    "MIMLRBF",
    "MIMLSVM",
    "MMMIL",
    "MIMLDummy",
    "MIMLFast",
    "MIMLMix",
    "ORedLogisticRegression",
    "OneVsRestMIL",
    "SingleInstanceLogisticRegression",
    "select_n_clusters",
]
