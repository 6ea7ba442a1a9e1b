"""MIMLfast: many bags, many labels, a shared space and sub-concepts."""
