"""Make worlds of logs: what real agents proposed, and what the real environment answered and gave for it."""
