"""Storage of results: the same keys and rules in a local folder and in S3.

Objects are created once and never overwritten, and a point's manifest is written last. Failures are never swallowed:
whatever cannot be stored raises NotDurable with a reason.
"""
