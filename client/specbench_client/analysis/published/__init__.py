"""Published tables as data, each with its source, and a run beside them: what is nearest, and in what it differs. Pure.

A published number was measured on another machine, with another version, on other prompts. It is something to hold a
measurement against, and never a pass or a fail.
"""
