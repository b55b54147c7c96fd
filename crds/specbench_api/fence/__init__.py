"""What the administrator of a cluster allows runs to use: allow-lists, forced values and limits. Pure."""
