"""Property tests must not fail because the machine is busy."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("penstock", deadline=None, print_blob=True)
settings.load_profile("penstock")
