"""Images with boxes, read from and written to the formats that other tools use."""
