"""Speed-up and acceptance against one axis, over the cells of several stored runs. Pure.

Only what is alike in everything but the axis joins one curve; each point is a speed-up over the baseline of its own
run, so that what differed from one day to another hardly bends a curve.
"""
