"""bagwise.models"""
