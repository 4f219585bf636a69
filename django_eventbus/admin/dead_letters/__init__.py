"""The pages of dead letters."""
