"""Logs, metrics and traces. Logs and metrics are receivers of the package's signals."""
