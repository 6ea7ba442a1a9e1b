"""Small tools without knowledge of bags: files, Arrow, progress, optional packages."""
