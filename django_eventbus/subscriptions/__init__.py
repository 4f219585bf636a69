"""Subscriptions, and the decisions about retries. Pure."""
