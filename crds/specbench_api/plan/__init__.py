"""What will be done, said before it is done: spec → engine groups → points with their hashes. Pure."""
