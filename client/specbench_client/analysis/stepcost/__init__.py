"""What a decode step costs by batch, draft length and context, fitted to the cells of a run or of several. Pure."""
