"""Methods on distances between bags."""
