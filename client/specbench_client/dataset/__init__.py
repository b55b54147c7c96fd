"""Prompt sets made ready before anything is measured: selected, inspected, brought to length, and filled in."""
