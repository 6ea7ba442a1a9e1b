"""bagwise.preprocessing"""
