"""The same work with other packages."""
