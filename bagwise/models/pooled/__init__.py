"""Bag statistics and any classifier of rows."""
