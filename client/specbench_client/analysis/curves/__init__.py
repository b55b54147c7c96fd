"""Speed-up and acceptance along one axis of a run, and where the speed-up crosses 1. Pure."""
