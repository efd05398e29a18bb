"""What happens to messages, from the producer's transfer to the consumer's outcome."""
