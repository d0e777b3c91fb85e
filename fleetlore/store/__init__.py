"""Read the lore from Milvus."""
