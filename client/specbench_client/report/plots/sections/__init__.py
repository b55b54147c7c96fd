"""What of a run goes into which plot: each file takes figures out of a summary; the table names them all."""
