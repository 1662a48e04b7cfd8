"""The HTTP API of the studio: thin handlers over `Workspace`. Its OpenAPI document is the contract."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import Annotated, Any, Literal
from urllib.parse import quote

from whet.errors import (
    CannotExportError,
    CannotLearnError,
    CannotWriteError,
    MissingExtraError,
    NotNowError,
    ProjectClosedError,
    UnknownItemError,
    WhetError,
)

try:
    from fastapi import BackgroundTasks, Body, FastAPI, Header, Path, Query, Request, Response
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
    from fastapi.staticfiles import StaticFiles
    from pydantic import BaseModel, Field
    from starlette.exceptions import HTTPException
except ImportError as error:
    raise MissingExtraError("fastapi", "studio") from error

from whet import __version__
from whet.web import exports, page_state, quality
from whet.web.labelling import MOST_BOXES
from whet.web.programs import Metrics, RequestId, add_events, add_programs, add_video
from whet.web.schemas import (
    BlameView,
    Corrected,
    CurvesView,
    EffectView,
    HistoryView,
    ImageList,
    ImageView,
    JobView,
    SavedView,
    StateView,
)
from whet.web.security import COOKIE, Access, Guard, token_in
from whet.web.studio import Studio
from whet.web.workspace import Workspace

STATIC = files("whet.web") / "static"

Side = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
BoxIn = tuple[Side, Side, Side, Side]
Id = Annotated[str, Path(max_length=100)]
NodeId = Annotated[int, Field(ge=0, le=2**53)]
Score = Annotated[float, Field(allow_inf_nan=False)] | Annotated[str, Field(max_length=100)]
Name = Annotated[str, Body(embed=True, min_length=1, max_length=100)]
Client = Annotated[str, Header(alias="X-Whet-Client", max_length=300, description="The page; empty for programs.")]


class Marked(BaseModel):
    """Boxes of an image, and whether they are the object."""

    boxes: Annotated[list[BoxIn], Field(min_length=1, max_length=MOST_BOXES)]
    is_object: bool
    replaces: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=MOST_BOXES)] = []
    effect: bool = True
    request_id: RequestId = None


class Confirmed(BaseModel):
    """A request without further facts."""

    request_id: RequestId = None


class ConfirmedImage(Confirmed):
    """A review: whether the detections that nobody judged are the object. Without `effect`, the answer comes sooner."""

    is_object: bool = True
    effect: bool = True


class ConfirmedImages(ConfirmedImage):
    """Images that are reviewed."""

    images: Annotated[list[str], Field(min_length=1, max_length=1000)]


class Target(BaseModel):
    """A state, or a branch."""

    node: NodeId | None = None
    branch: Annotated[str | None, Field(max_length=100)] = None
    request_id: RequestId = None


class Problem(BaseModel):
    """Why a request was not carried out: what was received, what was expected, what to do."""

    detail: str


# One status brings the model into the schema, and the others refer to it: a model for each status of each endpoint
# would take half of the time that an app is made in.
PROBLEM: dict[str, Any] = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    **dict.fromkeys((400, 401, 403, 404, 408, 409, 413, 415, 429, 503, 507), PROBLEM),
    422: {"model": Problem},
}


def make_app(studio: Studio, access: Access | None = None) -> Guard:
    """The web app of a studio, behind all checks."""
    access, metrics, workspace = access or Access(), Metrics(), studio.workspace
    app = FastAPI(
        title="whet studio",
        version=__version__,
        description="Correct a detector and see the effect on all images at once.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        responses=PROBLEMS,
    )
    _add_errors(app)
    _add_page(app, access)
    _add_images(app, studio)
    _add_corrections(app, studio)
    _add_history(app, studio)
    _add_quality(app, workspace)
    _add_files(app, workspace)
    _add_training(app, studio)
    add_video(app, studio, access)
    add_events(app, workspace, access)
    add_programs(app, studio, access, metrics)
    return Guard(app, access, metrics.add)


STATUS: dict[type[Exception], int] = {  # of others, 422
    CannotWriteError: 507,
    ProjectClosedError: 503,  # pages send what waits to the next studio
    UnknownItemError: 404,
    **dict.fromkeys((NotNowError, CannotLearnError, CannotExportError, MissingExtraError), 409),
}


def _add_errors(app: FastAPI) -> None:
    def problem(_: Request, error: Exception) -> JSONResponse:
        status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 422)
        return JSONResponse({"detail": str(error)}, status)

    def invalid(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"][1:])) or str(first["loc"][0])
        detail = f"{place}: {first['msg']}; see /api/openapi.json for what is expected"
        return JSONResponse({"detail": detail}, 422)

    def http(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return JSONResponse({"detail": str(error.detail)}, error.status_code, headers=error.headers)

    for kind in (WhetError, ValueError):
        app.add_exception_handler(kind, problem)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)


def _add_page(app: FastAPI, access: Access) -> None:
    @app.get("/", include_in_schema=False)
    def page(request: Request) -> Response:
        given = token_in(request.url.query)
        if access.token is not None and given:  # the token moves from the address into a cookie
            answer: Response = RedirectResponse("/", 303)
            answer.set_cookie(COOKIE, given, httponly=True, samesite="strict", max_age=30 * 86400)
            return answer
        return HTMLResponse((STATIC / "index.html").read_text())

    @app.get("/api/docs", include_in_schema=False)
    def docs() -> Response:
        return HTMLResponse(described(app.openapi()))

    app.mount("/static", StaticFiles(directory=str(STATIC), check_dir=False), name="static")


def _add_images(app: FastAPI, studio: Studio) -> None:
    workspace = studio.workspace

    @app.get("/api/state")
    def state() -> StateView:
        """The studio as a whole."""
        return page_state.state(studio)

    @app.get("/api/images")
    def images(
        order: Literal["name", "queue"] = "name",
        offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> ImageList:
        """A part of all images, by name or by queue.

        The queue has images without a review first: those in which most objects and errors are expected.
        Near-duplicates come later.
        """
        return page_state.images(workspace, order, offset, limit)

    @app.get("/api/images/{id}")
    def image(id: Id, tasks: BackgroundTasks) -> ImageView:
        """An image with its detections and labels."""
        tasks.add_task(workspace.prepare, id)
        return page_state.image(workspace, id)

    def encoded(content: bytes, etag: str, request: Request) -> Response:
        headers = {"ETag": f'"{etag}"', "Cache-Control": "private, max-age=31536000, immutable"}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type="image/jpeg", headers=headers)

    @app.get("/api/images/{id}/file", response_class=Response, responses={200: {"content": {"image/jpeg": {}}}})
    def file(id: Id, request: Request) -> Response:
        """The pixels of an image, as JPEG."""
        return encoded(workspace.gallery.jpeg(id), id, request)

    @app.get("/api/images/{id}/thumbnail", response_class=Response, responses={200: {"content": {"image/jpeg": {}}}})
    def thumbnail(id: Id, request: Request) -> Response:
        """A small copy of an image, as JPEG."""
        return encoded(workspace.gallery.thumbnail(id), f"{id}-small", request)


def _add_corrections(app: FastAPI, studio: Studio) -> None:
    workspace = studio.workspace

    @app.post("/api/images/{id}/labels")
    def label(id: Id, marked: Marked, client: Client = "") -> Corrected:
        """Learn that boxes of an image are the object, or are not."""
        return studio.labeller.label(
            id,
            marked.boxes,
            marked.is_object,
            author=client,
            request=marked.request_id,
            replaces=marked.replaces,
            effect=marked.effect,
        )

    @app.delete("/api/labels/{record_id}")
    def unlabel(
        record_id: Id,
        client: Client = "",
        request_id: Annotated[str | None, Query(max_length=100)] = None,
        effect: bool = True,
    ) -> Corrected:
        """Unlearn one correction."""
        return studio.labeller.unlabel(record_id, author=client, request=request_id, effect=effect)

    def reviewed(ids: list[str], confirmed: ConfirmedImage, client: str) -> Corrected:
        request, effect = confirmed.request_id, confirmed.effect
        is_object = confirmed.is_object
        return studio.labeller.confirm(ids, is_object=is_object, author=client, request=request, effect=effect)

    @app.post("/api/images/{id}/confirm")
    def confirm(id: Id, confirmed: ConfirmedImage, client: Client = "") -> Corrected:
        """The detections that an image shows and nobody has judged are all right, or all wrong."""
        return reviewed([id], confirmed, client)

    @app.post("/api/confirm")
    def confirm_all(confirmed: ConfirmedImages, client: Client = "") -> Corrected:
        """The detections of several images that nobody has judged are all right, or all wrong."""
        return reviewed(confirmed.images, confirmed, client)

    @app.post("/api/images/{id}/lock")
    def lock(id: Id, is_locked: Annotated[bool, Body(embed=True)]) -> ImageView:
        """Watch the boxes of an image from now on, or no longer."""
        quality.lock(workspace, id, is_locked)
        return page_state.image(workspace, id)

    @app.put("/api/min_score")
    def min_score(min_score: Annotated[Score, Body(embed=True)], client: Client = "") -> StateView:
        """Show detections above a score, or an operating point."""
        workspace.set_min_score(min_score, author=client)
        return page_state.state(studio)


def _add_history(app: FastAPI, studio: Studio) -> None:
    workspace = studio.workspace

    @app.post("/api/undo")
    def undo(confirmed: Confirmed, client: Client = "") -> StateView:
        """Move to the state before this one."""
        workspace.undo(author=client, request=confirmed.request_id)
        return page_state.state(studio)

    @app.post("/api/redo")
    def redo(confirmed: Confirmed, client: Client = "") -> StateView:
        """Move to the state that was undone last."""
        workspace.redo(author=client, request=confirmed.request_id)
        return page_state.state(studio)

    @app.get("/api/history")
    def history() -> HistoryView:
        """The tree of states."""
        return page_state.history_view(workspace)

    @app.post("/api/branches")
    def add_branch(name: Name, node: Annotated[NodeId | None, Body()] = None, client: Client = "") -> HistoryView:
        """Give a state a name, and switch to it."""
        workspace.add_branch(name, node, author=client)
        return page_state.history_view(workspace)

    @app.delete("/api/branches/{name}")
    def remove_branch(name: Id, client: Client = "") -> HistoryView:
        """Take a name away; the states stay."""
        workspace.remove_branch(name, author=client)
        return page_state.history_view(workspace)

    @app.post("/api/checkout")
    def checkout(target: Target, client: Client = "") -> StateView:
        """Move to any state, or to the end of a branch."""
        workspace.checkout(target.node, target.branch, author=client, request=target.request_id)
        return page_state.state(studio)


def _add_quality(app: FastAPI, workspace: Workspace) -> None:
    @app.get("/api/effect")
    def effect(
        from_: Annotated[int | None, Query(alias="from", ge=0, le=2**53)] = None,
        to: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    ) -> EffectView:
        """What differs between two states in all images, the most harmful first.

        By default, it is what the last change, undo, redo or switch did.
        """
        return quality.effect(workspace, from_, to)

    @app.post("/api/blame")
    def blame(image: Annotated[str, Body(max_length=100)], box: Annotated[BoxIn, Body()]) -> BlameView:
        """The corrections that made a box appear, or vanish."""
        return quality.blame(workspace, image, box)

    @app.get("/api/curves")
    def curves() -> CurvesView:
        """Precision and recall on reviewed images, and scores of both classes."""
        return quality.curves(workspace)


def _add_files(app: FastAPI, workspace: Workspace) -> None:
    def sent(file: exports.Exported) -> Response:
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.name)}"}
        return Response(file.content, media_type=file.media_type, headers=headers)

    @app.get("/api/export", response_class=Response)
    def export(format: exports.Format, reviewed: bool = True, images: bool = False) -> Response:
        """Confirmed boxes of reviewed images (or boxes of all) as COCO, YOLO or Pascal VOC; objects per image as CSV.

        With `images`, an archive that holds the image files too, where the annotations expect them.
        """
        return sent(exports.exported(workspace, format, reviewed=reviewed, images=images))

    @app.get("/api/model.whet", response_class=Response)
    def model() -> Response:
        """The detector as it is now."""
        return sent(exports.model_file(workspace))

    @app.get("/api/model.xml", response_class=Response)
    def opencv() -> Response:
        """The detector for OpenCV, where its format can hold it."""
        return sent(exports.opencv_file(workspace))

    @app.post("/api/save")
    def save(confirmed: Confirmed) -> SavedView:  # noqa: ARG001 - a body makes it JSON
        """Write the detector to its file."""
        return exports.save_model(workspace)


def _add_training(app: FastAPI, studio: Studio) -> None:
    @app.post("/api/train")
    def train(class_name: Name) -> JobView:
        """Train a first detector on the boxes of the project."""
        return studio.training.start(class_name)

    @app.get("/api/train")
    def job() -> JobView | None:
        """The training that runs, or the last one."""
        return studio.training.job

    @app.delete("/api/train")
    def cancel() -> JobView | None:
        """Stop the training; the next one goes on from its checkpoint."""
        return studio.training.cancel()


def described(document: dict[str, Any]) -> str:
    """The OpenAPI document as a plain page, without scripts: nothing is loaded from elsewhere."""
    rows = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            text = escape(operation.get("description") or operation.get("summary", ""))
            rows.append(f"<dt><code>{method.upper()} {escape(path)}</code></dt><dd>{text}</dd>")
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>whet studio API</title>"
        "<h1>whet studio API</h1><p>The shapes of requests and answers: "
        f"<a href=/api/openapi.json>/api/openapi.json</a></p><dl>{''.join(rows)}</dl></html>"
    )
