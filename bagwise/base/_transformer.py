"""The transformer: bags to bags, or bags to a table."""

from sklearn.base import TransformerMixin

from bagwise.base._input import BagInput


class BagTransformer(TransformerMixin, BagInput):
    """Base of transformers that turn bags into bags, or bags into a table."""
