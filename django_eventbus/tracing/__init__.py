"""Spans of what becomes of an event. Without OpenTelemetry, or without its SDK, there are none."""
