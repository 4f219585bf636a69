"""Find problems of a broker, and say how to fix them."""
