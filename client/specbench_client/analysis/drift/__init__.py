"""Whether acceptance has changed since a reference, and whether by the traffic or by the drafter.

requests       a log as a table: accepted, drafted, steps, category, time
ratios         pooled acceptance with the standard error of clusters; windows
charts         EWMA and CUSUM of each request's log acceptance length, with limits
calibrate      those limits, by simulation from the reference for a stated run length
decompose      a change into mix and drafter (Kitagawa), with intervals
judge          two logs → DriftReport
"""
