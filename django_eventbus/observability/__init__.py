"""Receivers of our own signals: logs, and how to write them as JSON; metrics, and where they go."""
