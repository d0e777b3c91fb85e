"""Ask a world of tools: pandas 3 and numpy 2, for models that learned older ones."""
