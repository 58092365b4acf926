"""The simulator: the same controller and the same policies as live, on a clock that jumps from event to event."""
