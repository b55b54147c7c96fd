"""How each launch of an engine fares: its Job and its pods, its client, its queue, and the group that it serves."""
