"""Prompts brought to a length on the common ruler, with the instruction left whole."""
