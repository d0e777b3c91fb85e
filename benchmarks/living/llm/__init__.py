"""Language models: where their weights come from, how they run here, and how they are asked."""
