"""Check, keep and follow adapters of the agents' own language model, without torch."""
