"""Ask a world of databases: questions to be answered by queries, the schema not given."""
