"""Exchanges, queues and bindings: declare, compare, migrate and print them."""
