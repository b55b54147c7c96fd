"""Where embeddings come from: an endpoint, a model on this machine, a file, or the words themselves."""
