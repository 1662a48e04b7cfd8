"""Draw boxes with scores and labels on images, and sheets of tiles: mistakes, and features. Needs only Pillow."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from whet.arrays import Bools, Floats, Int64s, Pixels
from whet.errors import WhetError
from whet.evaluation.evaluation import Label
from whet.io.files import prepared_folder, unique_stems, write_atomically
from whet.io.image_files import as_rgb
from whet.models.contract import Area, family_of

if TYPE_CHECKING:
    from PIL.Image import Image

    from whet.detector.detector import Detector
    from whet.evaluation.evaluation import ImageResult, Mistake
    from whet.images.detections import Detections
    from whet.io.image_files import ColorOrder, ImageLike
    from whet.models.contract import Model
    from whet.tracking.tracker import TrackedFrame

Color = tuple[int, int, int]
Rectangle = tuple[int, int, int, int]

FOUND, MISSED, FALSE_POSITIVE = (40, 190, 80), (220, 40, 40), (250, 150, 0)


def draw_boxes(
    image: ImageLike,
    boxes: ArrayLike,
    box_color: Color = FOUND,
    width: int | None = None,
    texts: Sequence[str] = (),
    *,
    color: ColorOrder = "rgb",
) -> Pixels:
    """Draw boxes (n, 4), half-open x1, y1, x2, y2, on an image: returns RGB (height, width, 3).

    `image` is a path, a Pillow image or an array, grey or colour; `color="bgr"` is for arrays of OpenCV. `width` is the
    width of the lines in pixels (default: by the size of the image). `texts` are the tags of the boxes, one for each
    or none at all. Tags stay inside the image; one that does not fit is shortened to its last word, or left out.

    >>> drawn = draw_boxes(np.zeros((20, 20), dtype=np.uint8), [[2, 2, 10, 10]], width=1)
    >>> drawn.shape, drawn[2, 9].tolist(), drawn[2, 10].tolist()
    ((20, 20, 3), [40, 190, 80], [0, 0, 0])
    """
    canvas = _Canvas(as_rgb(image, color))
    canvas.add(boxes, box_color, texts, width)
    return canvas.drawn()


def draw_detections(
    image: ImageLike,
    detections: Detections,
    label: str | Sequence[str] = "",
    *,
    box_color: Color = FOUND,
    color: ColorOrder = "rgb",
) -> Pixels:
    """Draw detections on an image, each with its score: returns RGB (height, width, 3); see `draw_boxes`.

    `label` is a class name that stands before every score, or one name for each detection; by default, their classes.

    >>> import whet
    >>> found = whet.Detections.from_boxes([[30, 40, 90, 100]], [34.2])
    >>> draw_detections(np.zeros((120, 160, 3), dtype=np.uint8), found, label="face").shape
    (120, 160, 3)
    """
    labels = [label] * len(detections) if isinstance(label, str) else label
    labels = labels if label else detections.labels
    texts = [f"{name} {score_text(score)}".strip() for name, (_, score) in zip(labels, detections, strict=True)]
    return draw_boxes(image, detections.boxes, box_color, texts=texts, color=color)


def draw_evaluation(image: ImageLike, result: ImageResult, threshold: float = -np.inf) -> Pixels:
    """Draw one image of an evaluation: correct detections in green, false positives in orange, misses in red.

    Detections need a score above the threshold. Their tags show the score; those of mistakes also say which it is.
    """
    canvas = _Canvas(as_rgb(image))
    right = np.flatnonzero((result.scores > threshold) & (result.matching.labels == Label.TRUE))
    false, missed = result.false_positives(threshold), result.missed(threshold)
    canvas.add(result.boxes[right], FOUND, [score_text(score) for score in result.scores[right].tolist()])
    wrong = [f"false positive {score_text(score)}" for score in result.scores[false].tolist()]
    canvas.add(result.boxes[false], FALSE_POSITIVE, wrong)
    canvas.add(result.truths[missed], MISSED, ["missed"] * len(missed))
    return canvas.drawn()


def draw_tracked_frame(image: ImageLike, tracked: TrackedFrame, scale: float = 1.0) -> Pixels:
    """Draw the tracked object in green, and all other detections in orange, each with its score.

    The line of the tracked object is thin if the detector does not accept it in this frame. `scale` is the size of
    `image` relative to the frame that was searched.
    """
    canvas = _Canvas(as_rgb(image))
    others = tracked.elsewhere
    boxes = tracked.detections.boxes
    scores = tracked.detections.scores[(boxes[:, None] == others[None]).all(axis=2).any(axis=1)].tolist()
    canvas.add(others * scale, FALSE_POSITIVE, [score_text(score) for score in scores], canvas.thin)
    if tracked.box is not None and tracked.track is not None:
        width = None if tracked.track.accepted else canvas.thin
        canvas.add(tracked.box[None] * scale, FOUND, [f"tracked {score_text(tracked.track.score)}"], width)
        canvas.prefer_last_tag()
    return canvas.drawn()


def score_text(score: float) -> str:
    """Format a score for a tag or a caption: three digits.

    >>> score_text(34.23), score_text(0.5), score_text(12345.6)
    ('34.2', '0.5', '12346')
    """
    return f"{score:.0f}" if abs(score) >= 1000 else f"{score:.3g}"


class _Canvas:
    """An image in memory. Tags are drawn last, so that no box covers them."""

    def __init__(self, image: Pixels) -> None:
        from PIL import Image, ImageDraw

        self._image = Image.fromarray(image)
        self._pen = ImageDraw.Draw(self._image)
        side = min(self._image.size)
        self.thin = max(1, min(side // 360, 3))
        self.thick = max(2, min(side // 160, 8))
        size = max(10, min(round(side / 36), 40))  # of the font, in pixels
        self._font, self._padding = _font(size), size // 7
        self._tags: list[tuple[Rectangle, str, Color]] = []

    def add(self, boxes: ArrayLike, color: Color, texts: Sequence[str] = (), width: int | None = None) -> None:
        """Draw boxes (n, 4), and keep their texts for the end."""
        corners = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
        for i, (x1, y1, x2, y2) in enumerate(np.round(corners).astype(int).tolist()):
            if x2 <= x1 or y2 <= y1:
                continue
            self._pen.rectangle((x1, y1, x2 - 1, y2 - 1), outline=color, width=width or self.thick)
            if texts:
                self._tags.append(((x1, y1, x2, y2), texts[i], color))

    def prefer_last_tag(self) -> None:
        """Give the last tag the first choice of its position."""
        if self._tags:
            self._tags.insert(0, self._tags.pop())

    def drawn(self) -> Pixels:
        """Draw the tags; returns RGB (height, width, 3)."""
        taken: list[Rectangle] = []
        for box, text, color in self._tags:
            for short in dict.fromkeys([_drawable(text), _drawable(text).rpartition(" ")[2]]):
                place = self._place(box, short, taken) if short else None
                if place is not None:
                    self._tag(place, short, color)
                    taken.append(place)
                    break
        self._tags.clear()
        return np.asarray(self._image)

    def _place(self, box: Rectangle, text: str, taken: list[Rectangle]) -> Rectangle | None:
        """Find the first position of a tag that is inside the image and covers no other tag; None if it is too wide."""
        width, height = self._tag_size(text)
        most_x, most_y = self._image.width - width, self._image.height - height
        if most_x < 0 or most_y < 0:
            return None
        x1, y1, x2, y2 = box
        above, below, right = y1 - height, y2, x2 - width
        wanted = [(x1, above), (x1, below), (right, above), (right, below), (x1, y1), (x1, y2 - height)]
        corners = [(min(max(x, 0), most_x), y) for x, y in wanted if 0 <= y <= most_y]
        corners.append((min(max(x1, 0), most_x), min(max(y1, 0), most_y)))
        places = [(x, y, x + width, y + height) for x, y in corners]
        free = (
            place
            for place in places
            if not any(place[0] < x and y < place[2] and place[1] < v and u < place[3] for y, u, x, v in taken)
        )
        return next(free, places[0])

    def _tag_size(self, text: str) -> tuple[int, int]:
        left, top, right, bottom = self._pen.textbbox((0, 0), _TALLEST + text, self._font)
        start = self._pen.textlength(_TALLEST, self._font)
        return int(right - start + 0.999) - int(left) + 2 * self._padding, int(bottom - top) + 2 * self._padding

    def _tag(self, place: Rectangle, text: str, color: Color) -> None:
        x1, y1, x2, y2 = place
        self._pen.rectangle((x1, y1, x2 - 1, y2 - 1), fill=color)
        top = self._pen.textbbox((0, 0), _TALLEST, self._font)[1]
        ink = (0, 0, 0) if np.dot(color, (0.299, 0.587, 0.114)) > 110 else (255, 255, 255)
        self._pen.text((x1 + self._padding, y1 + self._padding - top), text, ink, self._font)


_TALLEST = "Ag"  # the height of every tag, so that the tags of an image are alike


@lru_cache(maxsize=8)
def _font(size: int) -> Any:  # noqa: ANN401 - one of two classes of Pillow
    from PIL import ImageFont

    try:
        return ImageFont.load_default(size)
    except ImportError:  # a Pillow without FreeType has one font of one size
        return ImageFont.load_default()


def _drawable(text: str) -> str:
    """Replace characters that are not Latin-1: file names may hold any bytes, and Pillow's font only these."""
    return text.encode("latin-1", "replace").decode("latin-1")


LINE = 14  # pixels from one line of a caption to the next


def draw_caption(text: str, width: int, lines: int | None = None) -> Pixels:
    """Draw text in black on white, (height, width, 3), one row per line; a long line loses its middle.

    `lines` is the number of rows (default: as many as the text has).

    >>> draw_caption("a.png\\nmissed", 80).shape, draw_caption("a.png", 80, lines=3).shape
    ((28, 80, 3), (42, 80, 3))
    """
    from PIL import Image, ImageDraw

    rows = _drawable(text).split("\n")
    strip = Image.new("RGB", (width, LINE * (len(rows) if lines is None else lines)), (255, 255, 255))
    pen, font = ImageDraw.Draw(strip), _font(11)
    for number, row in enumerate(rows):
        short, left = row, len(row) - 1
        while pen.textlength(short, font) > width and left > 1:
            left -= 1
            short = f"{row[: left // 2]}...{row[len(row) - (left + 1) // 2 :]}"
        pen.text((0, LINE * number), short, (0, 0, 0), font)
    return np.asarray(strip)


def side_by_side(images: Sequence[Pixels], captions: Sequence[str]) -> Pixels:
    """Images of one height in a row, each with a caption above it.

    >>> side_by_side([np.zeros((20, 100, 3), np.uint8)] * 2, ["before", "after"]).shape[1]
    212
    """
    columns = []
    for image, caption in zip(images, captions, strict=True):
        columns.append(np.concatenate([draw_caption(caption, image.shape[1], lines=1), image]))
    space = np.full((len(columns[0]), 12, 3), 255, dtype=np.uint8)
    return np.concatenate([columns[0], *(part for column in columns[1:] for part in (space, column))], axis=1)


def save_image(image: Pixels | Image, path: Path) -> Path:
    """Write an array, grey or RGB, or a Pillow image as a PNG file, atomically."""
    from PIL import Image

    content = BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(content, format="PNG")
    write_atomically(path, content.getvalue())
    return path


class DrawnFolder:
    """Saves images with their detections to a directory; equal file names get numbers."""

    def __init__(self, folder: Path, paths: Sequence[Path]) -> None:
        self.folder = folder
        self._places = dict(zip(paths, drawing_places(folder, paths), strict=True))

    def add(self, path: Path, detections: Detections, label: str = "") -> Path:
        """Draw detections on an image file, and return the PNG file that was written."""
        prepared_folder(self.folder)
        return save_image(draw_detections(path, detections, label), self._places[path])


def drawing_places(folder: Path, paths: Sequence[Path]) -> list[Path]:
    """Return the PNG file in a directory for each image; raises `WhetError` if that would overwrite an image."""
    places = [folder / f"{stem}.png" for stem in unique_stems(paths)]
    check_none_replaced(places, paths)
    return places


def check_none_replaced(places: Iterable[Path], images: Iterable[Path]) -> None:
    """Raise `WhetError` if a file to be written is one of the images, also by another name for the same file.

    >>> check_none_replaced([Path("drawn/a.png")], [Path("a.png")])
    """
    originals = {_identity(image) for image in images} - {None}
    for place in places:
        if _identity(place) in originals:
            raise WhetError(f"{place} is an input image and would be overwritten; choose another directory")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


GAP = 6  # pixels between tiles
TILE = 128  # pixels of the sides of a tile of a contact sheet


def contact_sheet(
    images: Sequence[ImageLike],
    mistakes: Sequence[Mistake],
    most: int = 60,
    columns: int = 10,
    color: Color = FALSE_POSITIVE,
    captions: Sequence[str] = (),
) -> Pixels:
    """Draw the first mistakes of an evaluation as tiles, row by row: returns RGB (height, width, 3).

    `images` are the evaluated images, in their order: paths or arrays. Tiles are in the colours of the image, and grey
    outside of it. `captions` are the texts below the tiles: one for each mistake, or none at all.

    >>> from whet.evaluation.evaluation import Mistake
    >>> miss = Mistake(0, 0, np.array([2.0, 2.0, 8.0, 8.0]), -np.inf)
    >>> contact_sheet([np.zeros((20, 20), dtype=np.uint8)], [miss, miss, miss], columns=2).shape
    (274, 274, 3)
    """
    shown = mistakes[:most]
    rows = max(1, -(-len(shown) // columns))
    lines = max((text.count("\n") + 1 for text in captions), default=0)
    down, along = TILE + LINE * lines + GAP, TILE + GAP
    sheet = np.full((rows * down + GAP, min(columns, max(len(shown), 1)) * along + GAP, 3), 255, dtype=np.uint8)
    for number, mistake in enumerate(shown):
        row, column = divmod(number, columns)
        top, left = GAP + row * down, GAP + column * along
        sheet[top : top + TILE, left : left + TILE] = draw_tile(images[mistake.image], mistake.box, color)
        if captions:
            sheet[top + TILE : top + down - GAP, left : left + TILE] = draw_caption(captions[number], TILE, lines)
    return sheet


def draw_tile(image: ImageLike, box: Floats, color: Color) -> Pixels:
    """Cut a box and its surroundings out of an image, (TILE, TILE, 3), and draw the box."""
    from PIL import Image

    centre, side = (box[:2] + box[2:]) / 2, max(float((box[2:] - box[:2]).max()), 1.0) * 1.6
    corner = centre - side / 2
    size = max(1, round(side))
    x, y = np.round(corner).astype(int).tolist()
    canvas = Image.new("RGB", (size, size), (128, 128, 128))
    canvas.paste(Image.fromarray(as_rgb(image)), (-x, -y))
    cut = np.asarray(canvas.resize((TILE, TILE), Image.Resampling.BILINEAR))
    return draw_boxes(cut, (box - np.tile(corner, 2))[None] * (TILE / side), color, width=2)


def feature_sheet(detector: Detector, stages: int = 6, features: int = 8) -> Pixels:
    """Draw the first features of the first stages, one row of tiles per stage: returns RGB (height, width, 3).

    White areas have positive weights, black areas negative ones. A local binary pattern shows its 3 x 3 blocks; a leaf
    of a tree shows all its conditions in one tile, and a tree on channels its three cells. The background is the mean
    positive example, or grey if the detector has none. The caption has the stage, the weak learner, and its current
    weight.

    >>> from whet.detector.storage import load
    >>> feature_sheet(load("face"), stages=2, features=3).shape
    (266, 312, 3)
    """
    mean = detector.only.current.mean_positive
    mean = np.full(detector.window, 128, np.uint8) if mean is None else mean
    shown = enumerate(detector.model.votes.columns[:stages])
    rows = [_row(detector.model, columns, f"stage {number}", mean, features) for number, columns in shown]
    width = max(row.shape[1] for row in rows)
    padded = [np.pad(row, ((0, 0), (0, width - row.shape[1]), (0, 0)), constant_values=255) for row in rows]
    sheet = np.concatenate(padded)
    return np.pad(sheet, ((GAP, 0), (GAP, 0), (0, 0)), constant_values=255)


def _row(model: Model, columns: slice, name: str, mean: Pixels, most: int) -> Pixels:
    weights = model.votes.coef[columns][:most].tolist()
    tiles = []
    for i, weight in enumerate(weights):
        tile = draw_feature(model, columns.start + i, mean)
        below = draw_caption(f"{name}, no. {i}\nweight {weight:.3g}", max(tile.shape[1], 88))
        beside = ((0, 0), (0, below.shape[1] - tile.shape[1]), (0, 0))  # a tile may be narrower than its text
        tile = np.concatenate([np.pad(tile, beside, constant_values=255), below])
        tiles.append(np.pad(tile, ((0, GAP), (0, GAP), (0, 0)), constant_values=255))
    return np.concatenate(tiles, axis=1)


def draw_feature(model: Model, learner: int, below: Pixels) -> Pixels:
    """Draw a weak learner of a model over an enlarged image of its window: returns RGB (height, width, 3)."""
    zoom = max(1, 96 // max(model.window))  # pixels of the longer side
    tile = np.kron(below, np.ones((zoom, zoom))).astype(np.float64)
    height, width = model.window
    for area in family_of(model.family).areas(model, learner) or [Area(0, 0, width, height)]:
        x, y, w, h = (zoom * side for side in area[:4])
        if area.is_tilted:
            pixels = np.kron(tilted_pixels(model.window, area[:4]), np.ones((zoom, zoom), dtype=np.bool_))
            _tint(tile, pixels, area.weight)
        elif area.weight:
            _tint(tile, (slice(y, y + h), slice(x, x + w)), area.weight)
        else:  # an outline
            tile[y : y + h, [x, x + w - 1]] = 255
            tile[[y, y + h - 1], x : x + w] = 255
    return np.repeat(np.rint(tile).astype(np.uint8)[:, :, None], 3, axis=2)


def tilted_pixels(window: tuple[int, int], box: Sequence[int]) -> Bools:
    """Return the pixels (height, width) of a tilted rectangle, as sums and differences of four triangles.

    >>> tilted_pixels((4, 4), (2, 0, 1, 2)).astype(int)
    array([[0, 1, 0, 0],
           [1, 1, 0, 0],
           [1, 0, 0, 0],
           [0, 0, 0, 0]])
    """
    x, y, width, height = box
    rows, columns = np.indices(window)

    def triangle(below: int, right: int) -> Int64s:
        return (abs(columns - right + 1) <= below - rows - 1).astype(np.int64)

    upper = triangle(y, x) - triangle(y + height, x - height)
    return np.asarray(upper - triangle(y + width, x + width) + triangle(y + width + height, x + width - height) == 1)


def _tint(tile: Floats, where: Bools | tuple[slice, slice], weight: float) -> None:
    tone = 255 if weight > 0 else 0
    tile[where] += 0.55 * (tone - tile[where]) if weight else 0.0
