"""A model's own chat template and tokenizer, applied by the client: messages in, token ids out."""
