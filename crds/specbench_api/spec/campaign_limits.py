"""How large a campaign may be."""

RUNS_MAX = 256
"""Maximum number of runs in one round, and so of rows in status.runs."""
AXES_MAX = 8
PRODUCT_MAX = 4096
"""Maximum combinations before exclude; they are counted before any is generated."""
COMBINATION_TEXT_MAX = 96
"""Maximum number of characters of a combination in status.runs."""
