"""(resource, Observed, now) → Decision. Pure: no I/O, no clock, no memory; the same input gives the same decision."""
