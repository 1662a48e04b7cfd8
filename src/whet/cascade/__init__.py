"""From a cascade and an image to boxes: pyramid, scan, merging of windows."""
