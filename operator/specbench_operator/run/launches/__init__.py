"""The state of each engine launch and each engine group, from its Jobs, pods, queue and client."""
