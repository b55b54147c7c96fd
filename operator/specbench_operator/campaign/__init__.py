"""(campaign, its runs, now) → CampaignDecision. Pure: no I/O, no clock, no memory; the same input, one decision."""
