"""The SASL dialogue, both sides, its mechanisms and what they check against."""
