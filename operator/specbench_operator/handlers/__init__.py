"""Watches, resync, work queue and workers. Every trigger queues a name; reconciliation reads the object again."""
