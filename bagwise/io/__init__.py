"""bagwise.io"""
