"""Which table next: Golab, Johnson, Shkapenyuk, and what we add to it."""
