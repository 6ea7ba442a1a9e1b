"""Recordings to bags: decoding in blocks, cutting into windows or calls, describing each by about 100 numbers."""
