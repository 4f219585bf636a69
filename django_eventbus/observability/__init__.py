"""Receivers of our own signals: logs."""
