"""What happens to messages, from a producer's transfer to a consumer's outcome."""
