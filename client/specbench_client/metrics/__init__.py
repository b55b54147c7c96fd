"""Record → figure: one small unit each, with its formula, its unit, and when it is missing. Pure, on tidy rows."""
