"""Decides about a run: (RunObservation, settings, now) → RunDecision.

Everything here is a pure function without I/O, clock or memory, so that the same input gives the same decision. Status
is recomputed from the observation each time; the previous status is only a hint for what leaves no other trace.
"""
