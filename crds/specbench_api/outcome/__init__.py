"""Result documents: records, summaries, manifests and findings, and the keys under which they are stored. Versioned."""
