"""Threads, and workers of a cluster."""
