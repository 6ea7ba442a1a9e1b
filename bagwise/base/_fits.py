"""The one ``fit``: scikit-learn looks at its signature, so each class shows what its traits promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any

from bagwise.base._input import Traits
from bagwise.base.blocks import is_sharded
from bagwise.base.parameters import check_parameters
from bagwise.base.sharded import fit_sharded

_DOCUMENTED = """Learn from bags{what}.

    Parameters
    ----------
    X : Bags, list of 2-D arrays, table, or ShardedBags
        The bags.
    y : 0/1 matrix, DataFrame, lists of label names, or 1-D array of classes
        Their labels; left out for shards, which carry them inside.
{beside}
    Returns
    -------
    self
    """
_BESIDE = {
    "sample_weight": """\
    sample_weight : array of shape (n_bags,), optional
        Weights of the bags.
""",
    "instance_y": """\
    instance_y : array of shape (n_instances,) or (n_instances, n_labels), or str, optional
        Label index of every instance, -1 where it is not known; or a matrix: 1 where an instance carries
        a label, 0 where it does not, -1 where that is not known; or the name of the fact in
        ``bags.instance_info`` that holds either, which is cut with the bags in cross-validation.
""",
}


def fit_for(traits: Traits) -> Callable[..., Any]:
    """``fit`` of a class: with ``sample_weight`` and ``instance_y`` where its traits promise them."""
    promised = {"sample_weight": traits.sample_weight, "instance_y": traits.known_instances}
    names = [name for name, here in promised.items() if here]

    def fit(self: Any, X: Any, y: Any = None, *given: Any, **named: Any) -> Any:
        beside = signature.bind(self, X, y, *given, **named).arguments if given or named else {}
        sample_weight, instance_y = beside.get("sample_weight"), beside.get("instance_y")
        check_parameters(self, self._parameters)
        if is_sharded(X):
            return fit_sharded(self, X, y, **{name: beside.get(name) for name in names})
        bags, Y = self._check_training(X, y)
        weights = None if sample_weight is None else self._check_weights(sample_weight, bags)
        known = None if instance_y is None else self._check_instance_labels(instance_y, bags, Y)
        self._fit(bags, Y, *[value for value, here in zip((weights, known), promised.values()) if here])
        return self

    by_place, last = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
    kinds = {"self": by_place, "X": by_place, "y": by_place}
    kinds |= {name: by_place if name == names[0] else last for name in names}
    signature = Signature(
        [
            Parameter(n, kind, default=Parameter.empty if n in ("self", "X") else None)
            for n, kind in kinds.items()
        ]
    )
    what = ", their labels, and the labels of instances that are known"
    fit.__doc__ = _DOCUMENTED.format(
        what=what if traits.known_instances else " and their labels",
        beside="".join(_BESIDE[name] for name in names),
    )
    fit.__signature__ = signature  # type: ignore[attr-defined]
    fit.__qualname__ = "MIMLClassifier.fit"
    return fit


def fit_several(models: Sequence[Any], X: Any, y: Any) -> None:
    """Fit models of one class to the same bags in memory, as ``fit`` does one after the other.

    A class that can do better has ``_fit_several(models, bags, Y)``, for models that are checked and know
    their features and labels.
    """
    together = getattr(type(models[0]), "_fit_several", None)
    if together is None:
        for model in models:
            model.fit(X, y)
        return
    for model in models:
        check_parameters(model, model._parameters)
        bags, targets = model._check_training(X, y)
    together(models, bags, targets)
