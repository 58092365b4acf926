"""After an outage: adaptive scheduling with proven bounds, in a model without partitions, demand or upkeep."""
