"""A campaign, said before it is run: template × axes → runs with their names, and what they will cost. Pure."""
