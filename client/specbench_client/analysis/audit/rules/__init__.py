"""One file a law. `table` lists them in the order in which findings are told."""
