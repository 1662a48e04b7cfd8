"""Synthetic video of one face each, on which tracking parameters are chosen, so that no test video is used for that.

A photograph of LFW moves, approaches, rolls and turns over an image without faces that pans the other way; the light
changes, the edge of a shadow moves across the face, the camera blurs, and now and then an object covers the face. All
changes are smooth in time and depend on the seed only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.datasets import LFW_FACE, lfw_images, negative_images
from experiments.single_stage import FACE_OFFSET
from whet.io.image_files import read_grey

GreyImage = NDArray[np.uint8]
Floats = NDArray[np.float64]

HEIGHT, WIDTH = 240, 320
SIDE = 160
LEFT, TOP, FACE = LFW_FACE
CENTRE_X, CENTRE_Y = LEFT + FACE / 2, TOP + FACE / 2
RADIUS = 78.0  # of the head, a cylinder, in pixels of the photograph
# A face seen from the side extends from the nose to the ear: its centre moves less than the nose.
SHIFT = 0.6
SMALLEST, LARGEST = 36.0, 90.0


@dataclass(frozen=True, eq=False)
class Clip:
    """Frames (n, 240, 320) and the true box (n, 4) of the face in each."""

    frames: NDArray[np.uint8]
    truths: Floats

    def __len__(self) -> int:
        return len(self.frames)


@dataclass(frozen=True)
class Trouble:
    """How far a face rolls and turns (radians), and how strong light, blur and covers become."""

    roll: float = 0.35
    yaw: float = 0.7
    dark: float = 0.35
    bright: float = 0.9
    shadow: float = 0.6
    blur: float = 1.4
    uncovered: float = 0.9


HARD = Trouble(0.5, 0.95, 0.2, 1.0, 0.8, 2.0, 0.8)


def clips(
    n: int, length: int, seed: int = 0, trouble: Trouble | None = None, faces: Sequence[Path] | None = None
) -> Iterator[Clip]:
    """`n` clips of `length` frames, each of another person before another background.

    The people are from these photographs, or from all of LFW.
    """
    rng = np.random.default_rng([seed, 6])
    faces, images = faces or lfw_images(), negative_images()
    people = rng.choice(len(faces), n, replace=False)
    for person in people.tolist():
        background = read_grey(images[rng.integers(len(images))])
        while min(background.shape) < HEIGHT or background.shape[1] < WIDTH:
            background = read_grey(images[rng.integers(len(images))])
        yield clip(read_grey(faces[person]), background, length, rng, trouble or Trouble())


def clip(photograph: GreyImage, background: GreyImage, length: int, rng: np.random.Generator, trouble: Trouble) -> Clip:
    """One clip of a photograph (160, 160) over a background of at least 240 x 320 pixels."""
    frames, truths = np.empty((length, HEIGHT, WIDTH), np.uint8), np.empty((length, 4))
    size = SMALLEST * (LARGEST / SMALLEST) ** wander(length, rng, 0.5)
    margin = 0.75 * size
    x = margin + (WIDTH - 2 * margin) * wander(length, rng)
    y = margin + (HEIGHT - 2 * margin) * wander(length, rng)
    roll, yaw = (most * (2 * wander(length, rng) - 1) for most in (trouble.roll, trouble.yaw))
    light, shade = Light.from_length(length, rng, trouble), (background.shape[0] - HEIGHT, background.shape[1] - WIDTH)
    pan_y, pan_x = (np.rint(room * wander(length, rng)).astype(int) for room in shade)
    for t in range(length):
        scene = background[pan_y[t] : pan_y[t] + HEIGHT, pan_x[t] : pan_x[t] + WIDTH].astype(np.float64)
        scene = _with_face(scene, photograph, (x[t], y[t]), size[t], (roll[t], yaw[t]), light, t)
        if light.is_covered[t]:
            _cover(scene, background, (x[t], y[t]), size[t], light.cover[t])
        noisy = light.blurred(scene, t) + rng.normal(0, 2.5, scene.shape)
        frames[t] = noisy.clip(0, 255).astype(np.uint8)
        truths[t] = true_box((x[t], y[t]), size[t], (roll[t], yaw[t]))
    return Clip(frames, truths)


def true_box(centre: tuple[float, float], size: float, turn: tuple[float, float]) -> Floats:
    """The box (4,) of a face on a turned head: its centre moves 0.6 times as far as the nose."""
    (x, y), (roll, yaw), half = centre, turn, size / 2
    aside = SHIFT * RADIUS * np.sin(yaw) * size / FACE
    x, y = x + aside * np.cos(roll), y + aside * np.sin(roll)
    return np.asarray(FACE_OFFSET.boxes(np.array([[x - half, y - half, x + half, y + half]]))[0])


def wander(length: int, rng: np.random.Generator, speed: float = 1.0) -> Floats:
    """A smooth path (length,) between 0 and 1: four waves of random phases, the slowest of 400 frames.

    >>> path = wander(50, np.random.default_rng(0))
    >>> bool((path >= 0).all() and (path <= 1).all() and abs(np.diff(path)).max() < 0.05)
    True
    """
    t = speed * np.arange(length) / 400
    waves = [rng.uniform(0.3, 1) / k * np.sin(2 * np.pi * (k * t + rng.random())) for k in (1, 2, 3, 5)]
    return np.asarray(0.5 + 0.5 * np.tanh(np.sum(waves, axis=0)))


@dataclass(frozen=True, eq=False)
class Light:
    """Brightness (n,) and direction of the light, edge and depth of a shadow, blur, and position of a cover."""

    gain: Floats
    angle: Floats
    strength: Floats
    edge: Floats
    depth: Floats
    blur: Floats
    cover: Floats
    is_covered: NDArray[np.bool_]

    @classmethod
    def from_length(cls, length: int, rng: np.random.Generator, trouble: Trouble) -> Light:
        """Smoothly changing light."""
        gain, strength = trouble.dark + trouble.bright * wander(length, rng), 0.6 * wander(length, rng)
        angle = 2 * np.pi * (wander(length, rng) + rng.random())
        edge, depth = 3 * wander(length, rng, 2.0) - 1.5, 1 - trouble.shadow * wander(length, rng)
        blur = trouble.blur * (2 * wander(length, rng, 2.0) - 1).clip(0)
        cover, covered = wander(length, rng, 3.0), wander(length, rng, 2.0) > trouble.uncovered
        return cls(gain, angle, strength, edge, depth, blur, cover, covered)

    def on(self, lit: Floats, u: Floats, v: Floats, t: int) -> Floats:
        """A face in this light; u and v are places in the face, in radii of the head."""
        along = np.cos(self.angle[t]) * u + np.sin(self.angle[t]) * v
        shadow = self.depth[t] + (1 - self.depth[t]) / (1 + np.exp(-12 * (along - self.edge[t])))
        return np.asarray(lit * self.gain[t] * (1 + self.strength[t] * along) * shadow)

    def blurred(self, scene: Floats, t: int) -> Floats:
        """A scene after the blur of the camera."""
        from scipy.ndimage import gaussian_filter

        return np.asarray(gaussian_filter(scene, self.blur[t])) if self.blur[t] > 0.2 else scene


def _with_face(
    scene: Floats,
    photograph: GreyImage,
    centre: tuple[float, float],
    size: float,
    turn: tuple[float, float],
    light: Light,
    t: int,
) -> Floats:
    """A scene with the face around a centre, its window `size` pixels wide, turned by roll and yaw."""
    from scipy.ndimage import map_coordinates

    (x, y), (roll, yaw), scale = centre, turn, FACE / size
    reach = int(SIDE / 2 / scale) + 2
    left, top = max(int(x) - reach, 0), max(int(y) - reach, 0)
    part = scene[top : int(y) + reach, left : int(x) + reach]
    down, across = np.mgrid[: part.shape[0], : part.shape[1]]
    across, down = (across + left - x) * scale, (down + top - y) * scale
    u = (np.cos(roll) * across + np.sin(roll) * down) / RADIUS
    v = (np.cos(roll) * down - np.sin(roll) * across) / RADIUS
    around = np.arcsin(u.clip(-1, 1)) - yaw  # a place on the cylinder
    source = np.stack([CENTRE_Y + v * RADIUS, CENTRE_X + RADIUS * np.sin(around)])
    face = map_coordinates(photograph.astype(np.float64), source, order=1, mode="nearest")
    oval = ((1 - np.hypot(u / 0.9, v)) / 0.1).clip(0, 1)
    seen = oval * (abs(around) < np.pi / 2)
    part[:] = part * (1 - seen) + light.on(face, u, v, t) * seen
    return scene


def _cover(scene: Floats, background: GreyImage, centre: tuple[float, float], size: float, place: float) -> None:
    """Put a piece of the background, a third of a face wide, in front of the face."""
    width, height = int(0.35 * size), int(0.9 * size)
    left, top = int(centre[0] + (place - 0.5) * 1.2 * size - width / 2), int(centre[1] - 0.2 * size)
    y1, y2, x1, x2 = max(top, 0), min(top + height, HEIGHT), max(left, 0), min(left + width, WIDTH)
    if y2 > y1 and x2 > x1:
        scene[y1:y2, x1:x2] = background[: y2 - y1, : x2 - x1]
