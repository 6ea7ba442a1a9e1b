"""Baselines and bounds that every table needs, and one classifier per label."""
