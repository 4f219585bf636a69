"""The same work done by others."""
