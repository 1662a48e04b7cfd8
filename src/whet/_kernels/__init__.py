"""Compiled loops: plain functions on arrays that know nothing of the layers above."""
