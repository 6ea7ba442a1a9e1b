"""Label sets from any classifier of one label."""
