"""Video: a tracker, self-training, and sessions on a source."""
