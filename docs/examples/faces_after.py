"""Find faces with whet, read and draw with OpenCV: python faces_after.py photo.png faces.png."""

import sys

import cv2

from whet.opencv import CascadeClassifier


def main(source: str, target: str) -> None:
    """Read an image, find faces, draw them, save the result."""
    image = cv2.imread(source)
    faces = CascadeClassifier(cv2.data.haarcascades + "haarcascade_frontalface_default.xml")
    for x, y, width, height in faces.detectMultiScale(image, scaleFactor=1.1, minNeighbors=5, minSize=(40, 40)):
        print(x, y, width, height)
        cv2.rectangle(image, (x, y), (x + width, y + height), (0, 255, 0), 2)
    cv2.imwrite(target, image)


if __name__ == "__main__":
    main(*sys.argv[1:])
