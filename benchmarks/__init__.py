"""Compare the speed with a raw client and with other packages in one run: `make bench`."""
