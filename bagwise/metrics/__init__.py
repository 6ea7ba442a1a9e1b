"""bagwise.metrics"""
