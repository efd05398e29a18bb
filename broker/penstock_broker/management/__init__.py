"""`$management`: AMQP Management on exchanges, subscriptions, queues, connections, links and the broker."""
