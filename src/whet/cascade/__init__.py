"""From a cascade and a picture to boxes: pyramid, scan, merging of windows."""
