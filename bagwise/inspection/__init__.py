"""bagwise.inspection"""
