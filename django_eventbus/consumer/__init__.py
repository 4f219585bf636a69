"""Handle a delivery once through the inbox; then acknowledge, retry or park it."""
