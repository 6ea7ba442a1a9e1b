"""bagwise"""
