"""How alike prompts are, and the subset that is least so. Pure: unit vectors in, indices and figures out."""
