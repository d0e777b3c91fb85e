"""Measure what a backtest says beside rivals: the laboratory of `fleetlore backtest`."""
