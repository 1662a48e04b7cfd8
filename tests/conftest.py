"""Settings of all tests."""

from hypothesis import settings

# The first example of a test may wait for a kernel to be compiled.
settings.register_profile("whet", deadline=None)
settings.load_profile("whet")
