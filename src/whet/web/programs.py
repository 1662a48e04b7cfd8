"""Endpoints for programs, and streams: uploads, DeepStack's detection, metrics for Prometheus, events, video."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from threading import Lock, Semaphore
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import Body, FastAPI, File, Form, Request, Response, UploadFile
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from whet.errors import BoxError, NotNowError, UnknownItemError, WhetError
from whet.images.detections import Detections
from whet.web.gallery import decode
from whet.web.live import LiveImage, Video
from whet.web.page_state import detection_views
from whet.web.schemas import Corrected, FoundView, VideoView
from whet.web.security import Access, Receive, Scope, Send
from whet.web.studio import Studio
from whet.web.workspace import Workspace

LONGEST_NAME = 200

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

BOUNDARY = b"\r\n--frame\r\n"

RequestId = Annotated[str | None, Field(max_length=100)]
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
        # Frigate stops reading at the first prediction below this, and DeepStack's own default is near.
        min_confidence: Annotated[float, Form(ge=0, le=1)] = 0.4,
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
    order = np.argsort(-likely, kind="stable")[:100]
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


class Metrics:
    """Counts requests by route, method and status, and their seconds by route.

    >>> metrics = Metrics()
    >>> metrics.add("/api/state", "GET", 200, 0.02)
    >>> print(metrics.text({}).splitlines()[2])
    whet_requests_total{route="/api/state",method="GET",status="200"} 1
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: dict[tuple[str, str, int], int] = defaultdict(int)
        self._seconds: dict[str, list[float]] = defaultdict(lambda: [0.0] * (len(BUCKETS) + 2))

    def add(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request."""
        known = method if method in METHODS else "other"  # a client may send any word
        with self._lock:
            self._requests[route, known, status] += 1
            row = self._seconds[route]
            for number, bound in enumerate(BUCKETS):
                row[number] += seconds <= bound
            row[-2] += 1
            row[-1] += seconds

    def text(self, gauges: dict[str, tuple[str, float]]) -> str:
        """All numbers in Prometheus' text format; `gauges` are further ones by name, with their help."""
        with self._lock:
            requests, seconds = dict(self._requests), {route: list(row) for route, row in self._seconds.items()}
        lines = ["# HELP whet_requests_total Requests answered.", "# TYPE whet_requests_total counter"]
        for (route, method, status), n in sorted(requests.items()):
            lines.append(f'whet_requests_total{{route="{route}",method="{method}",status="{status}"}} {n}')
        lines += ["# HELP whet_request_seconds Time to answer.", "# TYPE whet_request_seconds histogram"]
        for route, row in sorted(seconds.items()):
            bounds = [*map(str, BUCKETS), "+Inf"]
            for bound, count in zip(bounds, row[:-1], strict=True):
                lines.append(f'whet_request_seconds_bucket{{route="{route}",le="{bound}"}} {count:.0f}')
            lines.append(f'whet_request_seconds_count{{route="{route}"}} {row[-2]:.0f}')
            lines.append(f'whet_request_seconds_sum{{route="{route}"}} {row[-1]:.6f}')
        for name, (help_text, value) in gauges.items():
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge", f"{name} {value:g}"]
        return "\n".join(lines) + "\n"


def gauges_of(workspace: Workspace) -> dict[str, tuple[str, float]]:
    """What is in a project."""
    found: dict[str, tuple[str, float]] = {
        "whet_images": ("Images of the project.", len(workspace.gallery)),
        "whet_corrections": ("Corrections of the current state.", len(workspace.record_ids())),
        "whet_states": ("States of the history.", len(workspace.history.nodes)),
    }
    if workspace.has_model:
        found["whet_cached_windows"] = ("Windows whose responses are kept.", workspace.cache.n_windows)
        estimate = workspace.estimate_at(workspace.history.current)
        if estimate is not None:
            found["whet_estimated_recall"] = ("Recall by the reference set.", estimate.recall)
            rate = estimate.false_positives_per_image
            found["whet_estimated_false_positives_per_image"] = ("False positives per image, by the same.", rate)
    return found


def add_video(app: FastAPI, studio: Studio, access: Access) -> None:
    """Add the endpoints of a video."""
    viewers = Semaphore(access.limits.viewers)

    def video() -> Video:
        if studio.video is None:
            raise UnknownItemError(
                "this studio shows no video; start `whet serve MODEL VIDEO` or `whet serve MODEL camera`"
            )
        return studio.video

    @app.get("/api/video")
    def view() -> VideoView:
        """Where the video is."""
        return video().view()

    @app.post("/api/video")
    def act(
        action: Annotated[Literal["play", "pause", "seek"], Body()],
        frame: Annotated[int | None, Body(ge=0, le=2**31)] = None,
    ) -> VideoView:
        """Play, pause (the frame becomes an image that can be corrected), or go to a frame."""
        return video().act(action, frame)

    @app.get("/api/video/frame.jpg", response_class=Response)
    def frame() -> Response:
        """The newest frame with its detections."""
        jpeg = video().live.jpeg()
        if not jpeg:
            raise NotNowError("no frame has come yet; try again in a second")
        return Response(jpeg, media_type="image/jpeg")

    @app.get("/api/video/stream.mjpg", response_class=StreamingResponse)
    def stream() -> Response:
        """The video with its detections, as MJPEG."""
        return LimitedStream(_parts(video().live), "multipart/x-mixed-replace; boundary=frame", viewers)


class LimitedStream(StreamingResponse):
    """Floods: a stream takes a place as it is sent, and gives it back whatever ends it; without one, it is refused.

    All requests of a burst would pass a check that comes before.
    """

    def __init__(self, content: AsyncIterator[str] | AsyncIterator[bytes], media_type: str, places: Semaphore) -> None:
        super().__init__(content, media_type=media_type)
        self._places = places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream, or the refusal."""
        if not self._places.acquire(blocking=False):
            refusal = {"detail": "too many streams are open; close another page, and try again"}
            await JSONResponse(refusal, 429)(scope, receive, send)
            return
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._places.release()


async def _parts(live: LiveImage) -> AsyncIterator[bytes]:
    """The images of a video with boundaries; the boundary follows each image directly, because browsers wait for it."""
    images = live.jpegs()
    yield BOUNDARY[2:]
    while (jpeg := await run_in_threadpool(next, images, None)) is not None:
        yield b"Content-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(jpeg) + jpeg + BOUNDARY


def add_events(app: FastAPI, workspace: Workspace, access: Access) -> None:
    """Add the stream of events."""
    streams = Semaphore(access.limits.streams)

    @app.get("/api/events", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
    async def events(request: Request) -> Response:
        """Changes as server-sent events."""

        async def as_text() -> AsyncIterator[str]:
            # events that a slow client has not read
            loop, waiting = asyncio.get_running_loop(), asyncio.Queue[dict[str, Any]](100)

            def put(event: dict[str, Any]) -> None:
                if waiting.full():
                    waiting.get_nowait()  # a slow client skips the oldest
                waiting.put_nowait(event)

            def receive(event: dict[str, Any]) -> None:
                loop.call_soon_threadsafe(put, event)

            with workspace.events.subscribed(receive):
                yield f"data: {json.dumps({'type': 'state', 'revision': workspace.revision})}\n\n"
                while not await request.is_disconnected():
                    try:
                        # seconds without an event after which one says that the server is there
                        event = await asyncio.wait_for(waiting.get(), 10.0)
                    except TimeoutError:
                        event = {"type": "alive"}
                    if event["type"] == "end":
                        return
                    yield f"data: {json.dumps(event)}\n\n"

        return LimitedStream(as_text(), "text/event-stream", streams)
