"""What a drafter could have reached: steps walked again over answers that are there already. Pure.

From how many drafts are accepted at each output position follow the steps of any draft length, of an oracle that knows
how many will be accepted, and of one that chooses between two drafters; with what a step costs, their speed-ups.
"""
