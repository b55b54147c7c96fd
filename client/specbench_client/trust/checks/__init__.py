"""One file a check, independent of one another."""
