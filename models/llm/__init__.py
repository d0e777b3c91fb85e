"""A judge and a distiller behind an OpenAI-compatible endpoint (extra `[llm]`). Nothing here is imported without one."""
