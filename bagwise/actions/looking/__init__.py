"""Looking at bags through the eyes of a model, with corrections; everything is returned as plain data."""

from bagwise.actions.looking.opening import explain, open_session
from bagwise.actions.looking.session import Session

__all__ = ["Session", "explain", "open_session"]
