"""How good detections are: overlap, matching, curves. Numbers only, no drawing."""
