"""Estimates what other drafting would gain, from measured answers: oracle, n-gram replay, draft lengths. Pure."""
