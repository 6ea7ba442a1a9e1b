"""bagwise.model_selection"""
