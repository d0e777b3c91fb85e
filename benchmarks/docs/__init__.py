"""Write the generated pages of docs/reference."""
