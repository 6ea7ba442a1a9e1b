"""MIML-GP: Gaussian processes over instances, and how labels go together."""
