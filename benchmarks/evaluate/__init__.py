"""Measure whether learning helps: worlds, an agent that may be wrong, arms that differ by their memory alone, and
honest statistics.
"""
