"""Let a language model choose among logged calls, with and without what fleetlore tells it."""
