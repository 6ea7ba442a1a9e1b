"""Pictures to bags of cells of a grid or of superpixels."""
