"""Applies a model's chat template and tokenizer in the client: messages in, token ids out."""
