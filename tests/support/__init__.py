"""Machinery of the suite that no test tests by itself."""
