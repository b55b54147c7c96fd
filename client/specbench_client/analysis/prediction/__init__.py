"""What simple formulas predict of a speed-up, what lies between that and the measurement, and other traffic. Pure."""
