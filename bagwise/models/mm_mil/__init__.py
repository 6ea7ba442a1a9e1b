"""MM-MIL: concepts with many faces."""
