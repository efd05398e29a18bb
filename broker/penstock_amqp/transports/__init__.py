"""What lies between a socket and AMQP: TLS, WebSocket."""
