"""Bags on disk in Parquet parts with a manifest, for data that outgrow the memory."""
