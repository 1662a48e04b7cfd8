"""The samples that records keep of their images: the object or the mistake, and backgrounds of annotated images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from whet.arrays import Bools, Boxes, Floats, Pixels
from whet.corrections.box_windows import AROUND, SAME
from whet.corrections.kept import BACKGROUND, BESIDE, MISTAKE, OBJECT, Crop, Crops, Kept, Region
from whet.corrections.records import Record
from whet.images.boxes import BoxOffset, box_iou, intersection_over_first
from whet.images.detections import without_near_copies
from whet.images.pyramid import Pyramid, Span, WindowIndex
from whet.models.contract import Model

# Backgrounds of an annotated image, and more for each of its objects: the windows with the highest scores in the base,
# without near-copies, and a share of random ones. What overlaps a box by this IoU is none, nor what lies in a region to
# ignore by half. Parts of objects are backgrounds.
PER_IMAGE, PER_OBJECT = 20, 12
RANDOM = 0.2
# Where the base accepts fewer windows, its limits are lowered by these units of margins.
LOOSENED = (0.0, 0.2, 0.6)
# Backgrounds that touch a single object that was learned, whatever else is in its image.
PER_BOX, TOUCHING = 10, 0.1
NEAR_OBJECT = 0.3


def with_samples(record: Record, model: Model, offset: BoxOffset, pyramid: Pyramid, pixels: Pixels | None) -> Record:
    """A correction with a crop of its box, and with what models read around it; without pixels, the latter alone."""
    box = np.array(record.box)
    crops = Crops()
    if pixels is not None:
        role, window = OBJECT if record.is_object else MISTAKE, offset.windows(box[None])[0]
        shown = box if record.is_object else window
        image = bytes.fromhex(record.image)
        rows = [Crop.cut(role, image, pixels, shown, window, model.window)]
        if record.is_object:
            beside = _beside(model, offset, pyramid, box)
            rows += [Crop.cut(BESIDE, image, pixels, part, part, model.window) for part in beside]
        crops = Crops.from_iterable(rows)
    region = None
    if record.kind == "correction":
        index = pyramid.overlapping(box, SAME if record.is_object else AROUND, offset)
        region = Region.cut(model, pyramid, index)
    return replace(record, kept=Kept(crops, region).to_bytes())


def object_sample(model: Model, offset: BoxOffset, pixels: Pixels, image: str, box: Floats) -> Record:
    """An object that the next refit trains on, and that corrects nothing."""
    crop = Crop.cut(OBJECT, bytes.fromhex(image), pixels, box, offset.windows(box[None])[0], model.window)
    x1, y1, x2, y2 = map(float, box)
    return Record("sample", image, (x1, y1, x2, y2), True, kept=Kept(Crops.from_iterable([crop])).to_bytes())


def _beside(model: Model, offset: BoxOffset, pyramid: Pyramid, box: Floats) -> Boxes:
    """Windows (n, 4) that the base nearly takes for the object (4,), but that only overlap it: no object is there."""
    spans = Region.cut(model, pyramid, pyramid.overlapping(box, TOUCHING, offset)).spans
    spans = {
        scale: Span(s.top, s.bottom - pyramid.window[0] + 1, s.left, s.right - pyramid.window[1] + 1)
        for scale, s in spans.items()
    }
    fired = model.scan(pyramid, model.votes.loosened(LOOSENED[-1]), spans=spans, threads=1)
    overlap = box_iou(box[None], offset.boxes(fired.boxes))[0]
    return without_near_copies(fired.take((overlap >= TOUCHING) & (overlap < NEAR_OBJECT)), PER_BOX).boxes


def background_record(
    model: Model,
    offset: BoxOffset,
    pyramid: Pyramid,
    pixels: Pixels,
    image: str,
    objects: Boxes,
    ignored: Boxes,
    threads: int | None = None,
) -> Record:
    """An image whose objects are all known: crops of what the base takes for objects elsewhere, and of other places."""
    n = PER_IMAGE + PER_OBJECT * len(objects)
    known = objects, ignored
    n_random = round(RANDOM * n)
    hard = _hardest(model, offset, pyramid, known, n - n_random, threads)
    places = pyramid.boxes(random_windows(pyramid, 2 * n_random, np.random.default_rng(list(bytes.fromhex(image)))))
    others = places[shows_no_object(offset.boxes(places), *known)][:n_random]
    name, window = bytes.fromhex(image), model.window
    crops = [Crop.cut(BACKGROUND, name, pixels, box, box, window) for box in np.concatenate([hard, others])]
    height, width = pixels.shape[:2]
    whole = 0.0, 0.0, float(width), float(height)
    return Record("sample", image, whole, False, kept=Kept(Crops.from_iterable(crops)).to_bytes())


def _hardest(
    model: Model, offset: BoxOffset, pyramid: Pyramid, known: tuple[Boxes, Boxes], n: int, threads: int | None
) -> Boxes:
    """The `n` windows (n, 4) outside of objects with the highest scores, or all that pass the lowest limits."""
    best = np.empty((0, 4))
    for by in LOOSENED:
        fired = model.scan(pyramid, model.votes.loosened(by), threads=threads)
        if len(fired) > 20_000 and by:
            break
        best = without_near_copies(fired.take(shows_no_object(offset.boxes(fired.boxes), *known)), n).boxes
        if len(best) >= n:
            break
    return best


def shows_no_object(boxes: Boxes, objects: Boxes, ignored: Boxes) -> Bools:
    """Which boxes (n, 4) show none of the objects (m, 4), and do not lie in a region to ignore."""
    near = (box_iou(boxes, np.concatenate([objects, ignored])) >= NEAR_OBJECT).any(axis=1)
    return np.asarray(~(near | (intersection_over_first(boxes, ignored) >= 0.5).any(axis=1)))


def random_windows(pyramid: Pyramid, n: int, rng: np.random.Generator) -> WindowIndex:
    """Windows at random places, on larger levels more often."""
    free = (np.array([level.shape for level in pyramid.levels]) - pyramid.window) // pyramid.step + 1
    room: Floats = np.sqrt(free.prod(axis=1).astype(np.float64))
    level = rng.choice(len(free), n, p=room / room.sum())
    y, x = ((rng.random((2, n)) * free[level].T).astype(np.intp)) * pyramid.step
    return WindowIndex(np.array(pyramid.scales)[level], y, x)
