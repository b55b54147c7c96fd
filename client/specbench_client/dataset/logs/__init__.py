"""Answers that are there already, read from files: prompts with outputs, and engines' traces."""
