"""Baselines that label instances."""
