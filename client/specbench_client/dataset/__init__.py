"""Prepares prompt sets before a measurement: selection, inspection, length control, and SPEED-Bench preparation."""
