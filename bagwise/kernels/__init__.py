"""bagwise.kernels"""
