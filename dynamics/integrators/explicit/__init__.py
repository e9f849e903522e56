"""The explicit Runge-Kutta method of order 8 (DOP853)."""
