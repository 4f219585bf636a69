"""The demo in parts: processes, a visitor, a narrator, the stages, and the outcome."""
