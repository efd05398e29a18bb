"""What the rows of a window say about each subscription: the questions to Spark, and what follows from the answers."""
