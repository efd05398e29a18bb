"""Pure functions that decide what to do for a resource and what its status says; they do no I/O."""
