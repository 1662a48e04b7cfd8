"""Boosted trees on channels of colour images."""
