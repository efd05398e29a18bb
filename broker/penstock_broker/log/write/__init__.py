"""Blocks are written to the newest segment and synced; checkpoints say when topology is written again."""
