"""publish() writes a row; the relay sends it, waits for the confirm, and marks it."""
