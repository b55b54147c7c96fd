"""Whole runs in virtual time: the real engine core and the real client, and no clock, socket or process between them.

What is real: the simulator's engine (continuous batching, step costs, draft and verify, faults) and its dialects, which
write the very bytes; the client's loops, fillers, phases, warm-up and self-watch; its dialects, which read those bytes
into records; Parquet and back; summaries, comparison and every check. What is not: the kernel between the two, and
time. An event loop that never waits lets an hour pass in seconds, and gives the same records for the same seed.
"""
