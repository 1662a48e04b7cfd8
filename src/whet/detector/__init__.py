"""Stages and cascades: what is saved and what is run."""
