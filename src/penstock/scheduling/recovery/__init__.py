"""Adaptive update scheduling (Leontyev, Johnson, Anderson 2010): recovery from outages with bounds known in advance.

tasks.py        what is known of each table before anything runs: cost, period, recovery period
reweighting.py  when the next job may come after a table speeds up: the seven rules
progress.py     where a table stands between two releases
modes.py        releases, deadlines and modes as time passes and things happen
bounds.py       what is proven of tardiness, response, staleness and recovery
policy.py       all of this as a policy for the controller
"""
