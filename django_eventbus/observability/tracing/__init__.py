"""Tracing with OpenTelemetry, if a project installs and configures it."""
