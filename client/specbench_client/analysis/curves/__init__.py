"""Speed-up and acceptance along one axis, within or across runs, and where the speed-up crosses 1. Pure."""
