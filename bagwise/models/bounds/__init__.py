"""Bounds that every table needs: the dummy, and a model that is shown every instance's label."""
