"""Models: what answers for the windows of an image."""
