"""Trainers: from patches and images to classifiers."""
