"""Decision "A merge adds everything since the base".

Sites that learn apart, merged into one detector: `python -m benchmarks.federated`.

Five sites learn 2,000 of OpenCV's faces each, as examples of the bundled face detector. `whet merge` makes one file of
theirs, and `whet unlearn --site` takes each of them out again. Prints JSON: whether the files equal, byte for byte,
those of detectors that learned the same faces in another order; the same if two sites share some faces; and sizes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from experiments.datasets import faces24
from experiments.report import versions
from numpy.typing import NDArray

import whet
from whet.corrections.box_windows import example_record
from whet.corrections.records import Record, image_hash
from whet.detector.detector import Detector
from whet.images.pyramid import WindowIndex

Faces = NDArray[np.uint8]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--faces", type=int, default=2000, help="of each site")
    parser.add_argument("--shared", type=int, default=200, help="faces that the second site has of the first, as well")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    every = faces24()
    chosen = np.random.default_rng(options.seed).permutation(len(every))[: options.sites * options.faces]
    faces = {f"site {i + 1}": every[part] for i, part in enumerate(np.array_split(chosen, options.sites))}
    report: dict[str, Any] = {"options": vars(options), "versions": versions(), "base_id": whet.load("face").base_id}
    with TemporaryDirectory() as folder:
        report["apart"] = measured(faces, Path(folder))
    first, second = list(faces)[:2]
    faces[second] = np.concatenate([faces[second], faces[first][: options.shared]])
    with TemporaryDirectory() as folder:
        report["sharing"] = measured(faces, Path(folder))
    print(json.dumps(report, indent=1))


def measured(faces: dict[str, Faces], folder: Path) -> dict[str, Any]:
    """Learn apart, merge, take each site out again, and compare with detectors that learned the same faces."""
    files = {}
    for site, patches in faces.items():
        files[site] = folder / f"{site}.whet"
        learned([(site, patches)]).save(files[site])
    merged = folder / "all.whet"
    run("merge", *files.values(), "--out", merged)
    removed = {}
    for site in faces:
        left = folder / "left.whet"
        run("unlearn", merged, "--site", site, "--out", left, "--force")
        others = [pair for pair in faces.items() if pair[0] != site]
        removed[site] = same(left, learned(reversed(others)))
    n = len(whet.load(merged).records)
    return {
        "faces": {site: len(patches) for site, patches in faces.items()},
        "records": n,
        "examples_counted": whet.load(merged).n_examples[0],
        "merged_equals_one_that_learned_all": same(merged, learned(reversed(list(faces.items())))),
        "removed_equals_never_there": removed,
        "sha256_of_merged": hashlib.sha256(merged.read_bytes()).hexdigest(),
        "bytes": {"base": len(whet.load("face").to_bytes()), "merged": merged.stat().st_size},
        "bytes_per_example": round((merged.stat().st_size - len(whet.load("face").to_bytes())) / n, 1),
    }


def learned(sites: Iterable[tuple[str, Faces]]) -> Detector:
    """The face detector with the faces of sites as examples, each site from its last face to its first."""
    detector = whet.load("face")
    detector.add([record for site, patches in sites for record in records(detector, site, patches[::-1])])
    return detector


def records(detector: Detector, site: str, patches: Faces) -> list[Record]:
    """Examples of patches that fill the window."""
    box, index = np.array([0.0, 0.0, 24.0, 24.0]), WindowIndex(np.ones(1), np.zeros(1, np.intp), np.zeros(1, np.intp))
    made = (example_record(detector.base, image_hash(one), box, index, one[None], True, 1) for one in patches)
    return [record.described(0, "", "", site) for record in made if record is not None]


def same(file: Path, detector: Detector) -> bool:
    """Whether a file has the bytes of a detector."""
    return file.read_bytes() == detector.to_bytes()


def run(*arguments: object) -> None:
    """Run a command of whet."""
    command: Sequence[str] = [sys.executable, "-m", "whet", *map(str, arguments), "--quiet"]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
