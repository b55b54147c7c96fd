"""What an n-gram drafter would have had accepted in texts that are there already, token by token. Pure."""
