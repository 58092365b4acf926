"""Flows on Spark."""
