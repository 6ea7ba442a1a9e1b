"""bagwise.datasets"""
