"""Dataset sources: the columns, template, licence and location on the hub of each."""
