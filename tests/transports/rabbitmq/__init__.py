"""RabbitMQ itself: what only a real broker can show."""
