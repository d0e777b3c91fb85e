"""Where results land: Milvus, topics, dead letters, metrics."""
