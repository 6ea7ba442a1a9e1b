"""Diverse density: a label is a point, or some points, that bags with the label come near to."""
