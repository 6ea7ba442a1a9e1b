"""The catalogue: one algorithm, one file."""

# The default
from bagwise.models.auto.estimator import BagClassifier

# Bounds that every table needs
from bagwise.models.simple.dummy import MIMLDummy
from bagwise.models.simple.single_instance import SingleInstanceLogisticRegression
from bagwise.models.simple.pooled_classifier import PooledClassifier
from bagwise.models.simple.pooled_logistic import PooledLogisticRegression

# Which instance carries which label, exactly
from bagwise.models.ored.classifier import ORedClassifier
from bagwise.models.ored.estimator import ORedLogisticRegression

# Which instance carries which label: the baselines
from bagwise.models.instance.lsb_cmm import LSBCMM
from bagwise.models.instance.rank_loss_sim import RankLossSIM

# Many bags, many labels
from bagwise.models.mimlfast.estimator import MIMLFast

# Probabilities with error bars, and how labels go together
from bagwise.models.gp.estimator import MIMLGP

# Networks, with torch
from bagwise.models.deep.estimator import DeepMIML

# Several views, some missing
from bagwise.models.mimlmix.estimator import MIMLMix

# Topics: labels have words
from bagwise.models.topics.dba import DBA
from bagwise.models.topics.m3lda import M3LDA

# Distances between bags: the baselines of MIML papers
from bagwise.models.distance.miml_knn import MIMLKNN
from bagwise.models.distance.miml_nn import MIMLNN
from bagwise.models.distance.miml_rbf import MIMLRBF
from bagwise.models.distance.miml_svm import MIMLSVM

# Machines for bags with several labels: more baselines of MIML papers
from bagwise.models.svm.cs_mi_svm import CSMISVM
from bagwise.models.svm.cs_svm import CSSVM
from bagwise.models.svm.d_miml_svm import DMIMLSVM
from bagwise.models.svm.kisar import KISAR
from bagwise.models.svm.m3_miml import M3MIML
from bagwise.models.svm.miml_boost import MIMLBoost

# Binary concepts with many faces, and one label against the rest
from bagwise.models.mm_mil.estimator import MMMIL, select_n_clusters
from bagwise.models.simple.one_vs_rest import OneVsRestMIL

# One label at a time, by neighbours
from bagwise.models.distance.citation_knn import CitationKNN

# Points that bags of a label come near to
from bagwise.models.diverse_density.dd_svm import DDSVM
from bagwise.models.diverse_density.diverse_density import DiverseDensity
from bagwise.models.diverse_density.em_dd import EMDD
from bagwise.models.diverse_density.mc_emdd import MCEMDD

# One label at a time: the baselines of multi-instance papers
from bagwise.models.svm.codebook_svm import CodebookSVM
from bagwise.models.instance.mi_forest import MIForest
from bagwise.models.svm.mi_graph import MIGraph
from bagwise.models.svm.mi_svm import MISVM
from bagwise.models.svm.miles import MILES
from bagwise.models.svm.milis import MILIS
from bagwise.models.svm.set_kernel_svm import SetKernelSVM

__all__ = [
    "CSMISVM",
    "CSSVM",
    "DBA",
    "DDSVM",
    "DMIMLSVM",
    "EMDD",
    "KISAR",
    "LSBCMM",
    "M3LDA",
    "M3MIML",
    "MCEMDD",
    "MILES",
    "MILIS",
    "MIMLGP",
    "MIMLKNN",
    "MIMLNN",
    "MIMLRBF",
    "MIMLSVM",
    "MISVM",
    "MMMIL",
    "BagClassifier",
    "CitationKNN",
    "CodebookSVM",
    "DeepMIML",
    "DiverseDensity",
    "MIForest",
    "MIGraph",
    "MIMLBoost",
    "MIMLDummy",
    "MIMLFast",
    "MIMLMix",
    "ORedClassifier",
    "ORedLogisticRegression",
    "OneVsRestMIL",
    "PooledClassifier",
    "PooledLogisticRegression",
    "RankLossSIM",
    "SetKernelSVM",
    "SingleInstanceLogisticRegression",
    "select_n_clusters",
]
