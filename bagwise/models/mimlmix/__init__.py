"""MIMLmix: a generative mixture over several views, some of them missing."""
