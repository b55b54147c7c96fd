"""Dataset sources: one module per source, with its columns, template, licence and location on the hub."""
