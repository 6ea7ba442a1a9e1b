"""Looking at bags through the eyes of a model, with corrections; everything is returned as plain data."""

from bagwise.actions.looking.session import Session, open_session

__all__ = ["Session", "open_session"]
