"""Frames and performatives, and what is read from or written into a stream of them beside the engine."""
