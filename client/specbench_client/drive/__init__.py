"""The composition root of a measurement: `group` drives one engine group into a store, `conclude` makes the answer.

Nothing is imported here: concluding takes plots and statistics, seconds that a client which only drives need not spend.
"""
