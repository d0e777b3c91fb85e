"""Token vectors and tokenizer of WordLlama 0.4.0, `l2_supercat_256` (© 2024 Lee Miller, MIT)."""
