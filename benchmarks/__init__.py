"""One command for each figure that fleetlore claims: `python -m benchmarks NAME`."""
