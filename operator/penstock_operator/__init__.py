"""The operator: brings Broker, Exchange and Subscription resources to running pods and broker topology."""
