"""Every trigger → the same reconciliation. Handlers carry nothing but a run's name: what they saw is read again."""
