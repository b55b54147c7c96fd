"""SPEED-Bench's placeholders filled in from the data sets that their texts come from."""
