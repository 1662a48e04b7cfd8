"""Files and data sets."""
