"""Proton's C engine: its functions, and what is done with them. The rest of `penstock_amqp` does not call it."""
