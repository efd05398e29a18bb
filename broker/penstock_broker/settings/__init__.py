"""What a broker is told at start."""
