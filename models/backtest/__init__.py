"""Measure what agents of logged sessions would have heard, and how right it would have been."""
