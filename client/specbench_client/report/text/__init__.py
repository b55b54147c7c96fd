"""A run's results as text: tables and lines for a terminal, Markdown and the page, one module a topic."""
