"""Builds the manifests of a run's children as plain dicts. Pure and deterministic; golden files contain them."""
