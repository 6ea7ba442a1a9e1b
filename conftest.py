"""Modules that need torch are not looked through for examples where it is not installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["bagwise/kernels/*torch*.py", "bagwise/models/deep/*"]
collect_ignore_glob += [] if find_spec("triton") else ["bagwise/kernels/triton_ops.py"]
