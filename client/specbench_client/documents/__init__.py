"""Document models that only the client uses: curves, drift, what-if reports, prices."""
