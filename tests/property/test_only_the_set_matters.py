"""Whatever the history of a detector: its file depends on the set of what it has learned now, and on nothing else.

The canonical state is the base, the operating points, the sum of the counted patches, and the set of records; of equal
records the earliest time, then the lesser name and note. Names, notes and times are in the file and decide nothing.
"""

import numpy as np
import pytest
from tests.detectors import bull_finder, bull_scene, judged_finder

from whet.detector.detector import Detector
from whet.detector.storage import load

PATCHES = np.random.default_rng(8).integers(0, 256, (6, 10, 12, 12), dtype=np.uint8)


def photographs():
    """Parts of photographs, at half their size, and drawn scenes."""
    data = pytest.importorskip("skimage.data")
    some = [np.asarray(getattr(data, name)())[::2, ::2][:150, :200] for name in ("camera", "coins", "brick", "page")]
    return [*some, bull_scene(1), bull_scene(2)]


class Site:
    """A detector, and the set of what it should hold."""

    def __init__(self, make):
        self.detector, self.held, self.counted = make(), set(), np.zeros(len(PATCHES), int)


class Histories:
    """Random histories over some boxes of some images."""

    def __init__(self, make, images, folder, monkeypatch):
        self.make, self.images, self.folder, self.monkeypatch = make, images, folder, monkeypatch
        rng = np.random.default_rng(1)
        self.boxes = []
        for number, image in enumerate(images):
            found = make().detect(image, min_score=0).boxes[:3]
            places = rng.uniform(0, 90, (2, 2))
            for box in [*found, *np.column_stack([places, places + rng.uniform(30, 50, (2, 1))])]:
                self.boxes += [(number, box, False), (number, box, True)]
        self.detached, self.sound = make(), []
        for i in range(len(self.boxes)):
            try:
                self.sound.append((i, self.learn(self.detached.copy(), i).records))
            except ValueError:  # no window of this detector is at the box
                continue

    def learn(self, detector, i):
        number, box, label = self.boxes[i]
        self.monkeypatch.setattr("whet.detector.detector.time.time", lambda: 1000 + i)
        return detector.learn(self.images[number], box[None], label, name=f"{number}.png", note=f"{i}")

    def expected(self, site):
        """The detector that never had another history: all at once, from records alone, in another order."""
        straight = self.make()
        for patches, n in zip(PATCHES, site.counted.tolist(), strict=True):
            if n:
                straight.learn_patches(patches, True, weights=n)
        straight.add(record for i, records in reversed(self.sound) if i in site.held for record in records)
        return straight

    def step(self, sites, rng):
        """One random thing that somebody does."""
        site = sites[rng.integers(len(sites))]
        i, records = self.sound[rng.integers(len(self.sound))]
        match rng.integers(8):
            case 0 | 1 | 2:
                self.learn(site.detector, i)
                site.held.add(i)
            case 3 if site.held:
                # No image is needed: the record, its id, or the beginning of its id.
                gone = int(rng.choice(sorted(site.held)))
                (record,) = dict(self.sound)[gone]
                site.detector.unlearn([record, record.id, record.id[:10]][rng.integers(3)])
                site.held.remove(gone)
            case 4:
                other = sites[rng.integers(len(sites))]
                if other is not site:
                    site.detector.merge(other.detector)
                    site.held |= other.held
                    site.counted += other.counted
            case 5:
                path = self.folder / f"{sites.index(site)}.whet"
                path.unlink(missing_ok=True)
                site.detector.save(path)
                site.detector = load(path)
            case 6:
                k = int(rng.integers(len(PATCHES)))
                if site.counted[k] and rng.random() < 0.5:
                    site.detector.unlearn_patches(PATCHES[k], True)
                    site.counted[k] -= 1
                else:
                    site.detector.learn_patches(PATCHES[k], True)
                    site.counted[k] += 1
            case 7:
                site.detector = Detector.from_bytes(site.detector.copy().to_bytes())
                site.detector.add(records)
                site.held.add(i)

    def check(self, seed, steps):
        rng = np.random.default_rng(seed)
        sites = [Site(self.make), Site(self.make)]
        for _ in range(steps):
            self.step(sites, rng)
        for site in sites:
            straight = self.expected(site)
            assert site.detector.to_bytes() == straight.to_bytes()
            for ours, theirs in zip(site.detector.model.cascade.stages, straight.model.cascade.stages, strict=True):
                assert ours.coef.tobytes() == theirs.coef.tobytes()
                assert ours.threshold == theirs.threshold
            assert site.detector.unsatisfied == [] or {r.id for r in site.detector.unsatisfied} == {
                r.id for r in straight.unsatisfied
            }
            site.detector.unlearn(site.detector.records)
            for patches, n in zip(PATCHES, site.counted.tolist(), strict=True):
                if n:
                    site.detector.unlearn_patches(patches, True, weights=n)
            assert site.detector.to_bytes() == self.make().to_bytes()


def finder():
    return judged_finder(default=12.0)


@pytest.mark.parametrize("make", [bull_finder, finder])
def test_a_few_histories(make, tmp_path, monkeypatch):
    histories = Histories(make, [bull_scene(1)], tmp_path, monkeypatch)
    for seed in range(3):
        histories.check(seed, 10)


@pytest.mark.slow
@pytest.mark.parametrize("make", [bull_finder, finder])
def test_a_hundred_histories_over_photographs(make, tmp_path, monkeypatch):
    histories = Histories(make, photographs(), tmp_path, monkeypatch)
    for seed in range(100):
        histories.check([7, seed], 20)


@pytest.mark.slow
def test_histories_of_the_face_detector(tmp_path, monkeypatch):
    data = pytest.importorskip("skimage.data")
    monkeypatch.setattr(f"{__name__}.PATCHES", np.random.default_rng(8).integers(0, 256, (2, 5, 24, 24), np.uint8))
    images = [data.astronaut()[:300, 100:400], data.coins(), data.coffee()[:250, :300]]
    histories = Histories(lambda: load("face"), images, tmp_path, monkeypatch)
    for seed in range(3):
        histories.check([9, seed], 12)
