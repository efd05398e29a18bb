"""The layers between a socket and AMQP: TLS and WebSocket."""
