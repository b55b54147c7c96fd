"""A run's summary for people: a page, tables for terminal, Markdown and spreadsheets, and plots."""
