"""Experiments of papers: what they measured, what we measure, and both side by side."""

from __future__ import annotations
