"""The mathematics of two Gaussian classes: statistics, discriminant, thresholds. Knows no image."""
