"""One AMQP connection on proton's C engine."""
