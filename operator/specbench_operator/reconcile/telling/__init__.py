"""What is said of a run: its status, short enough to be watched, its conditions, and the events between two looks."""
