"""Models the time of a decode step by batch size, draft length and context, fitted to measured cells. Pure."""
