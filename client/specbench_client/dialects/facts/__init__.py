"""What an engine tells of itself: one table an engine, of which page tells which fact. Pure."""
