"""Embeddings of prompts: from an endpoint, a local model, a file, or their words."""
