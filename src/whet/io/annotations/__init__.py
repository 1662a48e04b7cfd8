"""Annotated images: the data set, and readers and writers of COCO, YOLO, Pascal VOC, OpenCV, CSV and crops."""
