"""Images: pyramids, boxes, detections and their grouping."""
