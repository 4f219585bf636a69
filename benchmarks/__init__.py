"""How fast it is, beside a raw client and its peers, in one run: `make bench`."""
