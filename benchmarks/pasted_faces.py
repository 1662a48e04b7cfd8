"""Scenes for `face_choices`, `channel_face`, `corrections` and `adopted_cascade`: faces pasted into images.

Faces are of LFW and images are those held out from the training of the face detector (`scripts.train_face`), so that
neither was used in training, and no test set is needed. Half of the scenes are hard: small, faint, turned, blurred and
noisy faces. `window_scenes` pastes OpenCV's own training faces, as hard: training with LFW has to help on faces of
another kind too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from experiments.datasets import LFW_FACE, faces24, lfw_images
from numpy.typing import NDArray
from PIL import Image
from scripts.train_face import split_images

from whet.io.image_files import read_grey

GreyImage = NDArray[np.uint8]
Floats = NDArray[np.float64]
Scene = tuple[GreyImage, Floats]

SIDE = 160
LEFT, TOP, FACE = LFW_FACE
A_SCENE = 3
RIM = 8  # repeated around a window, for its corners when it is turned


def scenes(n: int = 200, seed: int = 0, *, hard: bool = False, faces: Sequence[Path] | None = None) -> list[Scene]:
    """Images and the boxes (m, 4) of the faces in them, which are of all of LFW or of these photographs."""
    rng = np.random.default_rng([seed, hard])
    paths = lfw_images() if faces is None else faces
    drawn = iter(rng.permutation(len(paths)).tolist())
    made = []
    for path in split_images()[1][:n]:
        image, boxes = read_grey(path).astype(np.float64), np.empty((0, 4))
        for _ in range(A_SCENE):
            image, boxes = _with_face(image, boxes, read_grey(paths[next(drawn)]), rng, hard=hard)
        made.append((image.clip(0, 255).astype(np.uint8), boxes))
    return made


def window_scenes(
    n: int = 200, seed: int = 0, *, windows: GreyImage | None = None, paths: Sequence[Path] | None = None
) -> list[Scene]:
    """The same with windows of `faces_opencv24`, which have no surroundings: 24 to 80 pixels, faint, turned, noisy.

    Other windows (m, 24, 24), each used once, and other images can be given.
    """
    rng = np.random.default_rng(seed)
    windows = faces24() if windows is None else windows
    drawn = iter(rng.permutation(len(windows)).tolist())
    made = []
    for path in (split_images()[1] if paths is None else paths)[:n]:
        image, boxes = read_grey(path).astype(np.float64), np.empty((0, 4))
        for _ in range(A_SCENE):
            side = round(float(np.exp(rng.uniform(np.log(24), np.log(80)))))
            patch, mask = _changed_window(windows[next(drawn)], side, rng)
            image, boxes = _placed(image, boxes, patch, mask, np.array([0.0, 0.0, side, side]), rng)
        made.append((image.clip(0, 255).astype(np.uint8), boxes))
    return made


def _with_face(
    image: Floats, boxes: Floats, photograph: GreyImage, rng: np.random.Generator, *, hard: bool
) -> tuple[Floats, Floats]:
    """Paste one more face, where there is room."""
    size = np.exp(rng.uniform(np.log(24), np.log(90 if hard else 160)))
    side = round(SIDE * size / FACE)
    patch, mask, left = _changed(photograph, side, rng, hard=hard)
    corner = np.array([left, TOP]) * size / FACE
    return _placed(image, boxes, patch, mask, np.concatenate([corner, corner + size]), rng)


def _placed(
    image: Floats, boxes: Floats, patch: Floats, mask: Floats, face: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Blend a square patch in at a place where its face (4,) meets no other, if one is found."""
    side = len(patch)
    for _ in range(20):
        if side >= min(image.shape):
            break
        y, x = (int(rng.integers(0, length - side + 1)) for length in image.shape)
        box = face + np.array([x, y, x, y])
        if not ((box[:2] < boxes[:, 2:]).all(axis=1) & (boxes[:, :2] < box[2:]).all(axis=1)).any():
            under = image[y : y + side, x : x + side]
            image[y : y + side, x : x + side] = under * (1 - mask) + patch * mask
            return image, np.concatenate([boxes, box[None]])
    return image, boxes


def _changed(photograph: GreyImage, side: int, rng: np.random.Generator, *, hard: bool) -> tuple[Floats, Floats, int]:
    """A face in another light, turned, resized and noisy; the mask that blends it in; where its box begins."""
    from scipy.ndimage import gaussian_filter

    gain, lift = rng.uniform(*((0.25, 1.2) if hard else (0.5, 1.3))), rng.uniform(-30, 30)
    lit = ((photograph.astype(np.float64) - 128) * gain + 128 + lift).clip(0, 255).astype(np.uint8)
    mirrored = rng.random() < 0.5
    left = SIDE - LEFT - FACE if mirrored else LEFT
    centre = left + FACE / 2, TOP + FACE / 2
    face = Image.fromarray(lit[:, ::-1] if mirrored else lit)
    turned = face.rotate(rng.normal(0, 9 if hard else 5), Image.Resampling.BILINEAR, center=centre)
    patch = np.asarray(turned.resize((side, side), Image.Resampling.BILINEAR), dtype=np.float64)
    patch = gaussian_filter(patch, rng.uniform(0, 1.2)) if hard else patch
    patch = patch + rng.normal(0, rng.uniform(0, 18 if hard else 12), patch.shape)
    y, x = np.mgrid[:SIDE, :SIDE]
    ellipse = ((1 - np.hypot((x - centre[0]) / 72, (y - centre[1]) / 78)) / 0.12).clip(0, 1)
    mask = Image.fromarray((255 * ellipse).astype(np.uint8)).resize((side, side), Image.Resampling.BILINEAR)
    return patch, np.asarray(mask) / 255, left


def _changed_window(window: GreyImage, side: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """A window in another light, mirrored, turned, resized, blurred and noisy; the mask that blends its rim in."""
    from scipy.ndimage import gaussian_filter

    lit = ((window.astype(np.float64) - 128) * rng.uniform(0.25, 1.2) + 128 + rng.uniform(-30, 30)).clip(0, 255)
    wide = np.pad(lit[:, ::-1] if rng.random() < 0.5 else lit, RIM, mode="edge").astype(np.float32)
    turned = Image.fromarray(wide).rotate(rng.normal(0, 9), Image.Resampling.BILINEAR)
    inner = (RIM, RIM, RIM + len(window), RIM + len(window))
    patch = np.asarray(turned.resize((side, side), Image.Resampling.BICUBIC, box=inner), dtype=np.float64)
    patch = gaussian_filter(patch, rng.uniform(0, 1.2))
    patch = patch + rng.normal(0, rng.uniform(0, 18), patch.shape)
    from_rim = 0.5 - np.abs((np.arange(side) + 0.5) / side - 0.5)
    fade = (from_rim / 0.08).clip(0, 1)
    return patch, np.minimum(fade[:, None], fade[None])
