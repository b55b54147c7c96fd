"""Published tables as data with their sources, and the nearest published rows of a run. Pure.

A published number was measured on another machine, with another version, on other prompts. It gives context for a
measurement, and is never a pass or a fail.
"""
