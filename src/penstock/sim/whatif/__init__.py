"""What would have been: a project's own log, run again under other policies, with more tracks, or after a mishap.

`recording` reads what came and what it cost, `replay` runs it again through the controller, `advice` compares the runs.
"""
