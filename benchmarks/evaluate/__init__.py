"""Measure what memories are worth to the agents of logs, by the answers that the logs hold."""
