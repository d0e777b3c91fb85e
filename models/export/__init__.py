"""Turn judged sessions into datasets that trainers of language models read."""
