"""The status of a run: its conditions, its size limit, and the events that a change of status causes."""
