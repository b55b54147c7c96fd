"""Breakdowns of a cell's requests and steps by position, context, length and turn, with intervals. Pure."""
