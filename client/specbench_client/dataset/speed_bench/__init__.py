"""Prepares SPEED-Bench: fills in its placeholders from the datasets that the texts come from."""
