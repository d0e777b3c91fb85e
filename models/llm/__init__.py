"""Ask a judge and a distiller behind an OpenAI-compatible endpoint (extra `[llm]`); nothing else imports it."""
