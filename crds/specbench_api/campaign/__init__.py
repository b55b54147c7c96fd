"""Expands a campaign into its named runs, from a template and axes. Pure."""
