"""bagwise.utils"""
