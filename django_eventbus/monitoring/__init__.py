"""How the bus is doing."""
