"""Ask a judge behind an OpenAI-compatible endpoint (extra `[llm]`); nothing else imports it."""
