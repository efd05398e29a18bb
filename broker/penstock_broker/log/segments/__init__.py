"""The segments that there are: what lives in each, where each message lies, and how it is read back."""
