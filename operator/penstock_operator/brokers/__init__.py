"""Clients of running brokers: sessions to their AMQP management, and their observers' lag results."""
