"""Trainers: from patches and pictures to classifiers."""
