"""Whole projects, drawn at random and lived through step by step, beside an oracle that shares no code with the product."""
