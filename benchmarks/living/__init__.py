"""Real language models in live worlds: what they do with what they are told."""
