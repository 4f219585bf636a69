"""Traces by OpenTelemetry, if a project installs and configures it."""
