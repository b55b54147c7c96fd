"""Documents that only the client writes and reads: records, summaries, manifests, comparisons. Versioned."""
