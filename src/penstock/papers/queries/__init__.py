"""Query policies on a virtual clock: one processor, items that are renewed, queries with deadlines."""
