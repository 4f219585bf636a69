"""What was parked: the record, its group, how to find it, and who touched it."""
