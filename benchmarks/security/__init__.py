"""Attack the parts that read what others wrote, and count what gets through."""
