"""Compiled loops over flat instances and bag offsets.

Import the module you need, as in ``from bagwise.compute.segment import segment_max``. Nothing is imported
here, so that ``import bagwise`` stays free of the compiler.
"""
