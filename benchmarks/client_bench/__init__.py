"""The benchmark of the instrument: our client and its peers against a server that knows when it sent what."""
