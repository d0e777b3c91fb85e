"""Measure what fleetlore would have learned from logged sessions, and how right that would have been on sessions it has
not seen.
"""
