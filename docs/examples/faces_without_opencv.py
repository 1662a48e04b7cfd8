"""Find faces with whet and Pillow: python faces_without_opencv.py photo.png faces.png haarcascade.xml."""

import sys

import numpy as np
from PIL import Image, ImageDraw

from whet.opencv import CascadeClassifier


def main(source: str, target: str, cascade: str) -> None:
    """Read an image, find faces, draw them, save the result."""
    image = Image.open(source).convert("RGB")
    bgr = np.asarray(image)[..., ::-1]  # CascadeClassifier takes what cv2 takes: BGR or grey
    draw = ImageDraw.Draw(image)
    for x, y, width, height in CascadeClassifier(cascade).detectMultiScale(
        bgr, scaleFactor=1.1, minNeighbors=5, minSize=(40, 40)
    ):
        print(x, y, width, height)
        draw.rectangle((x, y, x + width, y + height), outline=(0, 255, 0), width=2)
    image.save(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
