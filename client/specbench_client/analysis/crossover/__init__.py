"""Where a speed-up is 1 along an axis: over the load within a run, or over any axis of several runs. Pure."""
