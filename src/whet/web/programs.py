"""Endpoints for programs: detect in an upload, learn from an upload, DeepStack's detection, metrics."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, File, Form, Response, UploadFile
from fastapi.responses import JSONResponse, PlainTextResponse

from whet.cascade.detections import Detections
from whet.errors import BoxError, WhetError
from whet.web.effects import detection_views
from whet.web.gallery import decode
from whet.web.metrics import Metrics, gauges_of
from whet.web.security import Access
from whet.web.studio import Studio
from whet.web.views import Corrected, FoundView
from whet.web.workspace import Workspace

# Frigate stops reading at the first prediction below this, and DeepStack's own default is near.
LEAST_CONFIDENCE = 0.4
MOST_PREDICTIONS = 100
LONGEST_NAME = 200

Upload = Annotated[UploadFile, File(description="An image file: JPEG, PNG, WebP, BMP, GIF, PPM or TIFF.")]


@dataclass(frozen=True)
class Prediction:
    """A detection in DeepStack's shape."""

    label: str
    confidence: float
    x_min: int
    y_min: int
    x_max: int
    y_max: int


@dataclass(frozen=True)
class Predictions:
    """DeepStack's answer; `duration` is in milliseconds."""

    success: bool
    predictions: list[Prediction]
    code: int
    duration: int


def add_programs(app: FastAPI, studio: Studio, access: Access, metrics: Metrics) -> None:
    """Add all endpoints of this module."""
    workspace = studio.workspace

    @app.post("/api/detect")
    def detect(image: Upload, min_score: Annotated[float | None, Form(allow_inf_nan=False)] = None) -> FoundView:
        """Find objects in an image; nothing of it is kept."""
        pixels = decode(image.file.read())
        found = workspace.found_in(pixels, min_score)
        return FoundView(pixels.shape[1], pixels.shape[0], detection_views(found))

    @app.post("/api/learn")
    def learn(
        image: Upload,
        boxes: Annotated[str, Form(max_length=100_000, description="JSON: a list of [x1, y1, x2, y2].")],
        is_object: Annotated[bool, Form()],
        client: Annotated[str, Form(max_length=100)] = "",
        request_id: Annotated[str | None, Form(max_length=100)] = None,
    ) -> Corrected:
        """Add an image to the project, and learn that boxes of it are the object, or are not."""
        parsed = boxes_in(boxes)
        added = workspace.add_image(decode(image.file.read()), _name_of(image))
        return studio.labeller.label(added.id, parsed, is_object, author=client, request=request_id)

    @app.post("/v1/vision/detection", response_model=Predictions, responses={400: {}, 401: {}})
    def deepstack(
        image: Upload,
        min_confidence: Annotated[float, Form(ge=0, le=1)] = LEAST_CONFIDENCE,
        api_key: Annotated[str, Form(max_length=200)] = "",
    ) -> Any:  # noqa: ANN401 - predictions, or an error in DeepStack's own shape
        """Find objects, in the request and response shape of DeepStack: for Frigate, Viseron and others."""
        if not access.is_token(api_key):
            return JSONResponse({"success": False, "error": "the api_key is missing or wrong", "code": 401}, 401)
        began = time.perf_counter()
        try:
            found = workspace.found_in(decode(image.file.read()), -np.inf)
        except WhetError as error:
            return JSONResponse({"success": False, "error": str(error), "code": 400}, 400)
        chosen = predictions(workspace, found, min_confidence)
        return Predictions(True, chosen, 200, round(1000 * (time.perf_counter() - began)))

    @app.get("/metrics", response_class=PlainTextResponse)
    def prometheus() -> Response:
        """Numbers for Prometheus."""
        return PlainTextResponse(metrics.text(gauges_of(workspace)), media_type="text/plain; version=0.0.4")


def predictions(workspace: Workspace, found: Detections, least: float) -> list[Prediction]:
    """The most likely detections, the best first; without probabilities, 0.5 is at the minimum score."""
    likely = found.probabilities
    if np.isnan(likely).any():
        middle = max(workspace.min_score, 1e-9) if np.isfinite(workspace.min_score) else 1.0
        likely = found.scores.clip(0) / (found.scores.clip(0) + middle)
    name = workspace.detector.class_name or workspace.name
    order = np.argsort(-likely, kind="stable")[:MOST_PREDICTIONS]
    rows = [(likely[i], found.boxes[i].round().astype(int).clip(0).tolist()) for i in order if likely[i] >= least]
    return [Prediction(name, round(float(share), 4), *box) for share, box in rows]


def boxes_in(text: str) -> list[tuple[float, float, float, float]]:
    """Boxes in JSON; raises `BoxError` for anything else.

    >>> boxes_in("[[1, 2, 30, 40]]")
    [(1.0, 2.0, 30.0, 40.0)]
    """
    try:
        parsed = json.loads(text)
        boxes = [(float(x1), float(y1), float(x2), float(y2)) for x1, y1, x2, y2 in parsed]
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise BoxError(f"got boxes={text[:80]!r}; expected JSON such as [[x1, y1, x2, y2]] in pixels") from error
    if not boxes:
        raise BoxError("got no boxes; expected at least one, as [[x1, y1, x2, y2]] in pixels")
    return boxes


def _name_of(image: UploadFile) -> str:
    """The name that a client gives an upload, without directories; it is shown, never opened."""
    name = (image.filename or "upload").replace("\\", "/").rpartition("/")[2]
    return "".join(c for c in name if c.isprintable())[:LONGEST_NAME] or "upload"
