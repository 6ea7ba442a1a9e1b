"""bagwise.report"""
