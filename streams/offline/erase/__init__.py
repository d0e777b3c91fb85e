"""Erase what a session, an agent, a user or a tenant has left, store by store."""
