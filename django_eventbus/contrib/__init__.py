"""Ties to other systems. Nothing else in the package imports them."""
