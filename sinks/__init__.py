"""Write results to Milvus, topics, adapter files and metrics."""
