"""Common checks that every estimator of bags must pass; usable by other packages for their own models."""

from bagwise.checks.estimator_checks import all_checks, check_miml_estimator

__all__ = ["all_checks", "check_miml_estimator"]
