"""The catalogue: one algorithm, one file, imported when it is first asked for.

A new estimator has one line in the table, and one among the imports that only type checkers see.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_PLACES = {
    # The default
    "BagClassifier": "bagwise.models.auto.estimator",
    # Bounds that every table needs
    "MIMLDummy": "bagwise.models.simple.dummy",
    "SingleInstanceLogisticRegression": "bagwise.models.simple.single_instance",
    "PooledClassifier": "bagwise.models.simple.pooled_classifier",
    "PooledLogisticRegression": "bagwise.models.simple.pooled_logistic",
    # Which instance carries which label, exactly
    "ORedClassifier": "bagwise.models.ored.estimator_any",
    "ORedLogisticRegression": "bagwise.models.ored.estimator",
    # Which instance carries which label: the baselines
    "LSBCMM": "bagwise.models.instance.lsb_cmm",
    "RankLossSIM": "bagwise.models.instance.rank_loss_sim",
    # Many bags, many labels
    "MIMLFast": "bagwise.models.mimlfast.estimator",
    # Probabilities with error bars, and how labels go together
    "MIMLGP": "bagwise.models.gp.estimator",
    # Networks, with torch
    "DeepMIML": "bagwise.models.deep.estimator",
    # Several views, some missing
    "MIMLMix": "bagwise.models.mimlmix.estimator",
    # Topics: labels have words
    "DBA": "bagwise.models.topics.dba",
    "M3LDA": "bagwise.models.topics.m3lda",
    # Distances between bags: the baselines of MIML papers
    "MIMLKNN": "bagwise.models.distance.miml_knn",
    "MIMLNN": "bagwise.models.distance.miml_nn",
    "MIMLRBF": "bagwise.models.distance.miml_rbf",
    "MIMLSVM": "bagwise.models.distance.miml_svm",
    # Machines for bags with several labels: more baselines of MIML papers
    "CSMISVM": "bagwise.models.svm.cs_mi_svm",
    "CSSVM": "bagwise.models.svm.cs_svm",
    "DMIMLSVM": "bagwise.models.svm.d_miml_svm",
    "KISAR": "bagwise.models.svm.kisar",
    "M3MIML": "bagwise.models.svm.m3_miml",
    "MIMLBoost": "bagwise.models.svm.miml_boost",
    # Binary concepts with many faces, and one label against the rest
    "MMMIL": "bagwise.models.mm_mil.estimator",
    "select_n_clusters": "bagwise.models.mm_mil.estimator",
    "OneVsRestMIL": "bagwise.models.simple.one_vs_rest",
    # One label at a time, by neighbours
    "CitationKNN": "bagwise.models.distance.citation_knn",
    # Points that bags of a label come near to
    "DDSVM": "bagwise.models.diverse_density.dd_svm",
    "DiverseDensity": "bagwise.models.diverse_density.diverse_density",
    "EMDD": "bagwise.models.diverse_density.em_dd",
    "MCEMDD": "bagwise.models.diverse_density.mc_emdd",
    # One label at a time: the baselines of multi-instance papers
    "CodebookSVM": "bagwise.models.svm.codebook_svm",
    "MIForest": "bagwise.models.instance.mi_forest",
    "MIGraph": "bagwise.models.svm.mi_graph",
    "MISVM": "bagwise.models.svm.mi_svm",
    "MILES": "bagwise.models.svm.miles",
    "MILIS": "bagwise.models.svm.milis",
    "SetKernelSVM": "bagwise.models.svm.set_kernel_svm",
}

if TYPE_CHECKING:
    from bagwise.models.auto.estimator import BagClassifier
    from bagwise.models.deep.estimator import DeepMIML
    from bagwise.models.distance.citation_knn import CitationKNN
    from bagwise.models.distance.miml_knn import MIMLKNN
    from bagwise.models.distance.miml_nn import MIMLNN
    from bagwise.models.distance.miml_rbf import MIMLRBF
    from bagwise.models.distance.miml_svm import MIMLSVM
    from bagwise.models.diverse_density.dd_svm import DDSVM
    from bagwise.models.diverse_density.diverse_density import DiverseDensity
    from bagwise.models.diverse_density.em_dd import EMDD
    from bagwise.models.diverse_density.mc_emdd import MCEMDD
    from bagwise.models.gp.estimator import MIMLGP
    from bagwise.models.instance.lsb_cmm import LSBCMM
    from bagwise.models.instance.mi_forest import MIForest
    from bagwise.models.instance.rank_loss_sim import RankLossSIM
    from bagwise.models.mimlfast.estimator import MIMLFast
    from bagwise.models.mimlmix.estimator import MIMLMix
    from bagwise.models.mm_mil.estimator import MMMIL, select_n_clusters
    from bagwise.models.ored.estimator import ORedLogisticRegression
    from bagwise.models.ored.estimator_any import ORedClassifier
    from bagwise.models.simple.dummy import MIMLDummy
    from bagwise.models.simple.one_vs_rest import OneVsRestMIL
    from bagwise.models.simple.pooled_classifier import PooledClassifier
    from bagwise.models.simple.pooled_logistic import PooledLogisticRegression
    from bagwise.models.simple.single_instance import SingleInstanceLogisticRegression
    from bagwise.models.svm.codebook_svm import CodebookSVM
    from bagwise.models.svm.cs_mi_svm import CSMISVM
    from bagwise.models.svm.cs_svm import CSSVM
    from bagwise.models.svm.d_miml_svm import DMIMLSVM
    from bagwise.models.svm.kisar import KISAR
    from bagwise.models.svm.m3_miml import M3MIML
    from bagwise.models.svm.mi_graph import MIGraph
    from bagwise.models.svm.mi_svm import MISVM
    from bagwise.models.svm.miles import MILES
    from bagwise.models.svm.milis import MILIS
    from bagwise.models.svm.miml_boost import MIMLBoost
    from bagwise.models.svm.set_kernel_svm import SetKernelSVM
    from bagwise.models.topics.dba import DBA
    from bagwise.models.topics.m3lda import M3LDA

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


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
