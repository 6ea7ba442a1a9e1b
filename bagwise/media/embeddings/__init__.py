"""Features made elsewhere to bags: slides, folders of arrays, tables."""
