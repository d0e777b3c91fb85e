"""Say what the relay and the topics carry, for clients in any language."""
