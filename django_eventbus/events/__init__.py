"""What is published, and its form on the wire. Pure: no models and no broker."""
