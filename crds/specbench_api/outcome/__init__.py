"""What comes back: records, summaries, manifests, findings, and where each lies. Versioned documents."""
