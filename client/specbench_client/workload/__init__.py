"""Prompts: read from files, checked row by row, selected the same way everywhere."""
