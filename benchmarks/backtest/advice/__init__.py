"""Measure what an agent hears: advice before each call and after each failure, against what the logs say came of it."""
