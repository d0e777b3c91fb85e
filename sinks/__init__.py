"""Write results to Milvus, to topics, to adapter files and to metrics."""
