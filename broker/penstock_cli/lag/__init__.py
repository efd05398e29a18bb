"""`penstock lag report` and `penstock lag --watch`: lag without Spark, from the observers of one Broker."""
