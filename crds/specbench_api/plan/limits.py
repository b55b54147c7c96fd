"""How large a plan may be."""

POINTS_MAX = 4096
"""Maximum number of points of a run."""
CELLS_MAX = 1024
"""Maximum number of rows of status.arms."""
GROUPS_MAX = 512
"""Maximum number of rows of status.groups."""
PLAN_BYTES_MAX = 900_000
"""A ConfigMap is limited to 1 MiB, including the object around the plan."""
