"""Annotated images: the data set, and readers and writers of annotation formats."""

# Those of `whet.io.annotations.formats.FORMATS`, listed here so that help needs no imports.
FORMAT_NAMES = ("coco", "yolo", "voc", "opencv", "csv", "crops")
