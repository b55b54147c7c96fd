"""From a run's summary to a recommendation: which arm, at which load, and what it costs. Pure.

Everything is decided from the summary's figures and their intervals. A gain is the paired one at the same load wherever
there is one; what two arms give at different loads is not paired, and is said so.
"""
