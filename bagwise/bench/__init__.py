"""Experiments of papers: what they measured, what we measure, and both side by side."""
