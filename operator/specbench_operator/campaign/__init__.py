"""Decides about a campaign: (CampaignObservation, now) → CampaignDecision.

Everything here is a pure function without I/O, clock or memory, so that the same input gives the same decision.
"""
