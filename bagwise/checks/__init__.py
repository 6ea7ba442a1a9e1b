"""bagwise.checks"""
