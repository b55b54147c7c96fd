"""Document models that only the client uses: audits, curves, drift, what-if reports, published tables, prices."""
