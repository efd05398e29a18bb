"""Answers Open, Attach, Detach, End and Close: reads the request, asks the rules, applies the decision, replies."""
