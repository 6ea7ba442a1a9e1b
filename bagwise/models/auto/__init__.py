"""The default: an ensemble of members for bags and instances."""
