"""Measure what real language models do with advice in live worlds."""
