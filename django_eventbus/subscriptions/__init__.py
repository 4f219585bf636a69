"""Who receives which events, and what a failure leads to. Pure."""
