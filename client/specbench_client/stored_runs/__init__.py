"""Reads stored runs for the commands that analyse them: results, records, and the inputs of each analysis."""
