"""The AMQP 1.0 type system: values, and their bytes."""
