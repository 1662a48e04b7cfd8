"""Decision "Peers at their best".

A face detector of ours next to OpenCV's three. `python -m benchmarks.face_detector FILE`.

Prints JSON. Recall: faces of MIT+CMU found at given numbers of false positives, by one rule for all; ours with
`detect` at scale factors 1.1 and 1.2, OpenCV's in the best of many settings at that number. Speed: images of 640 x 480,
OpenCV and ours alternating, on one thread and on all. Parts that need a missing test set or OpenCV are
skipped, with a remark.
"""

from __future__ import annotations

import argparse
import json
from typing import Any, get_args

from experiments.mit_cmu import Trial, faces_at
from experiments.opencv_peers import NoPeersError, run_peers
from experiments.report import versions

from benchmarks.measuring import cascade_model
from whet.detector.storage import load
from whet.errors import DataNotFoundError
from whet.images.detections import GROUPING, Grouping
from whet.models.gslda.cascade import Cascade

FALSE_POSITIVES = (10, 15, 20, 26, 35, 50, 60, 69, 100, 107, 150, 200)
FACTORS = (1.1, 1.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="model file of a face detector")
    parser.add_argument("--grouping", choices=get_args(Grouping), default=GROUPING)
    parser.add_argument("--no-peers", action="store_true", help="recall of ours alone: a minute instead of several")
    options = parser.parse_args()
    cascade = cascade_model(load(options.model)).cascade
    remarks: list[str] = []
    report: dict[str, Any] = {"stages": [len(stage) for stage in cascade.stages], "versions": versions()}
    try:
        report["faces"] = recall(cascade, Trial.from_mit_cmu(), options.grouping, not options.no_peers, remarks)
    except DataNotFoundError as error:
        remarks.append(f"no recall: {error}")
    print(json.dumps(report | {"remarks": remarks}, indent=1))


def recall(
    cascade: Cascade,
    trial: Trial,
    grouping: Grouping = GROUPING,
    with_peers: bool = True,
    remarks: list[str] | None = None,
) -> dict[str, dict[str, int]]:
    """Faces found at each of `FALSE_POSITIVES`, by ours and by the peers."""
    faces = {
        f"whet, factor {scale_factor}": _table(
            faces_at(trial.run(cascade, scale_factor=scale_factor, grouping=grouping).curve, FALSE_POSITIVES)
        )
        for scale_factor in FACTORS
    }
    if not with_peers:
        return faces
    try:
        return faces | {peer.name: _table(peer.faces_at(FALSE_POSITIVES)) for peer in run_peers(trial)}
    except NoPeersError as error:
        (remarks if remarks is not None else []).append(f"no peers: {error}")
        return faces


def _table(faces: list[int]) -> dict[str, int]:
    return {str(n): found for n, found in zip(FALSE_POSITIVES, faces, strict=True)}


if __name__ == "__main__":
    main()
