"""The threads of a worker process."""
