"""What a user writes, and what the operator writes beneath it."""
