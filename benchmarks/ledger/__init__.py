"""The application under load."""
