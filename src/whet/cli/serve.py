"""`whet serve`: the studio, a local web app to correct a detector and to see the effect on all images at once."""

from __future__ import annotations

import re
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.options import Quiet, Threads
from whet.cli.output import start, warn

if TYPE_CHECKING:
    from whet.web.server import StudioServer
    from whet.web.studio import Studio

DEFAULT_PORT = 8765
SUFFIX = ".studio"


def serve(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL] [IMAGES|VIDEO|camera]...",
            help="A detector (face, FILE.whet, FILE:CLASS or .xml), and what to show: images, directories, a video "
            "file or camera[:N].",
        ),
    ] = None,
    project: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Project file (default: name of the model + .studio, in this directory)."),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="Address to listen on. Others than this machine need the token.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, metavar="N", help=f"Port (default: {DEFAULT_PORT}, or a free one if in use)."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Token that clients need (default: a random one beyond loopback)."),
    ] = None,
    browser: Annotated[
        bool | None, typer.Option("--browser/--no-browser", help="Open the page (default: yes, on a terminal).")
    ] = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Open the studio: correct a detector in the browser and see the effect on all images at once.

    Corrections are written to the project file before they are acknowledged. Save or download the model in the page.
    Without a model, draw boxes and train one. Only this machine can open the page unless --host says otherwise; then
    every request needs the token. Press Ctrl-C to stop.

    \b
    Examples:
      whet serve face photos/
      whet serve cars.whet street.mp4
      whet serve photos/ --project signs.studio
      whet serve face camera --host 0.0.0.0
    """
    start(quiet=quiet)
    from whet.detector.storage import load
    from whet.errors import CannotLearnError
    from whet.web.security import SHORTEST_TOKEN
    from whet.web.studio import Studio

    if token is not None and len(token) < SHORTEST_TOKEN:
        raise typer.BadParameter(
            f"got a token of {len(token)} characters; expected at least {SHORTEST_TOKEN}, or none for a random one"
        )

    model, sources = split_inputs(inputs or [])
    detector = None if model is None else load(model)
    if detector is not None:
        try:  # the page disables its controls
            detector.only.check_can_learn()
        except CannotLearnError as error:
            warn(f"Warning: corrections are disabled: {error}")
    place = project or Path(default_project(model, sources))
    with Studio.open(place, detector, model, sources, threads=threads) as studio:
        if host not in ("127.0.0.1", "localhost", "::1") and token is None:
            token = secrets.token_urlsafe(16)
        server = _server(studio, host, port, token)
        address = server.address + (f"?token={token}" if token else "")
        warn(f"studio at {address}")
        if not server.is_private:
            warn("Warning: others on the network can open this page with its token; the connection is not encrypted")
        if browser if browser is not None else sys.stderr.isatty():
            import webbrowser

            webbrowser.open(address)
        server.run()


def _server(studio: Studio, host: str, port: int | None, token: str | None) -> StudioServer:
    from whet.errors import CannotServeError
    from whet.web.api import make_app
    from whet.web.security import Access
    from whet.web.server import StudioServer

    app = make_app(studio, Access(token=token))
    if port is not None:
        return StudioServer(app, host, port)
    try:
        return StudioServer(app, host, DEFAULT_PORT)
    except CannotServeError:
        return StudioServer(app, host, 0)


def split_inputs(inputs: list[str]) -> tuple[str | None, list[str]]:
    """The model, if the first input is one, and what to show.

    >>> split_inputs(["face", "photos/"]), split_inputs(["photos/"]), split_inputs(["camera"])
    (('face', ['photos/']), (None, ['photos/']), (None, ['camera']))
    >>> split_inputs(["signs.whet:stop", "a.jpg"])
    ('signs.whet:stop', ['a.jpg'])
    """
    if not inputs:
        return None, []
    first = inputs[0]
    is_file = re.search(r"\.(whet|xml)(:[^/\\]+)?$", first, re.IGNORECASE) is not None
    is_name = re.fullmatch(r"[\w-]+", first) is not None and first != "camera" and not Path(first).exists()
    return (first, inputs[1:]) if is_file or is_name else (None, list(inputs))


def default_project(model: str | None, sources: list[str]) -> str:
    """The project file of a model, or of the images without one.

    >>> default_project("models/cars.whet", []), default_project(None, ["photos/"]), default_project(None, [])
    ('cars.studio', 'photos.studio', 'untitled.studio')
    """
    from whet.detector.storage import class_in_file

    if model is not None:
        file, name = class_in_file(model)
        return file.stem + (f"-{re.sub(r'[^A-Za-z0-9_-]', '_', name)}" if name else "") + SUFFIX
    named = re.sub(r"[^A-Za-z0-9_-]", "_", Path(sources[0]).resolve().stem) if sources else ""
    return (named or "untitled") + SUFFIX
