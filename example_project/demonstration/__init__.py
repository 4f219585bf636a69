"""The demo in parts: processes, a visitor, a narrator, the stages, the summary and the outcome."""
