"""Events and their form on the wire. Pure: no models and no broker."""
