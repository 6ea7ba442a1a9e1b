"""What the names on a page stand for."""

from __future__ import annotations

from collections.abc import Sequence

from bagwise.report.pages.cells import ResultFigure, ResultTable
from bagwise.report.pages.parts import title_of

_MEASURES = {
    "accuracy": "share of bags whose class is found",
    "auc": "area under the ROC curve: how often a bag with the label scores higher than one without",
    "average_precision": "mean over a bag's labels of the share of right ones among labels ranked as high",
    "coverage_raw": "how far down a bag's ranking of labels one must go to meet all of its own",
    "coverage_norm": "coverage divided by the number of labels",
    "hamming_loss": "share of all pairs of bag and label that are predicted wrongly",
    "hamming_loss_top": "Hamming loss when each bag gets as many labels as training bags have on average",
    "instance_accuracy": "share of instances whose label is found",
    "instance_accuracy_inductive": "share of instances whose label is found without knowing the bag's labels",
    "instance_accuracy_transductive": "share of instances whose label is found, the bag's labels being known",
    "instance_accuracy_given_labels": "share of instances whose label is found, the bag's labels being known",
    "key_instance_accuracy": "how often the best instance of a bag for one of its labels really carries it",
    "macro_f1": "harmonic mean of precision and recall of each label, averaged over labels",
    "mean_average_precision": "average precision of each label's ranking of bags, averaged over labels",
    "one_error": "share of bags whose highest ranked label is not one of theirs",
    "one_minus_average_precision": "one minus the average precision, so that lower is better",
    "ranking_loss": "share of pairs of a bag's own label and another in the wrong order",
    "train_time": "time of one fit",
    "test_time": "time of predicting the test bags",
}
_UNITS = ("_percent", "_s", "_min", "_mb")
_STATISTICS = {
    "std": "standard deviation over repeats",
    "p": "probability of a difference at least as large if the methods were equal",
    "CD": "critical difference (Bonferroni-Dunn): average ranks further apart than this differ",
    "Friedman χ², Iman–Davenport F": "tests whether average ranks over data sets differ at all",
}


def terms_of(results: Sequence[ResultTable | ResultFigure]) -> dict[str, str]:
    """Terms and explanations: methods as the results explain them, measures, words of statistics.

    Examples
    --------
    >>> figure = ResultFigure("p:fig1", "T", "bags", "AUC", glossary=(("MLR", "logistic regression"),))
    >>> list(terms_of([figure])), terms_of([figure])["MLR"]
    (['MLR', 'std', 'p', 'CD', 'Friedman χ², Iman–Davenport F'], 'logistic regression')
    """
    found: dict[str, str] = {}
    for result in results:
        found.update((term, text) for term, text in result.glossary if term not in found)
    for result in results:
        if not isinstance(result, ResultTable):
            continue
        for measure in result.measures:
            text = _explained(measure)
            if text:
                found.setdefault(title_of(measure, result.direction(measure)), text)
    return found | _STATISTICS


def _explained(measure: str) -> str:
    for unit in _UNITS:
        if measure.endswith(unit) and measure not in _MEASURES:
            measure = measure.removesuffix(unit)
    return _MEASURES.get(measure, "")
