"""Token vectors made from all-MiniLM-L6-v2, and its tokenizer, unchanged (both Apache-2.0)."""
