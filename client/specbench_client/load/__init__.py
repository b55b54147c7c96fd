"""Load: who sends what when. Turns, conversations, the closed loop, and the client's watch over itself.

It is given a dialect and a transport and knows no engine; it never writes a file, records leave through a callback.
"""
