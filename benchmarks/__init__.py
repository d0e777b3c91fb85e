"""Measure each figure that fleetlore claims, a command each: `python -m benchmarks NAME`."""
