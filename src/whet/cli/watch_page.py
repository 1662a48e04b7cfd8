"""The live picture of `whet watch --show`: a page in a browser, here or on another machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from whet.cli.watch_report import say

if TYPE_CHECKING:
    from whet.web.live_picture import LivePicture


@contextmanager
def watch_page(model: str, source: str, learns: bool, host: str | None, port: int | None) -> Iterator[LivePicture]:
    """Serve the page, and say where: also to who wants no progress, as a free port is not to be guessed."""
    from whet.web.live_picture import LivePicture
    from whet.web.live_server import LiveServer

    live = LivePicture({"model": Path(model).stem, "source": short_name(source), "learns": learns})
    with LiveServer(live, host or "127.0.0.1", port or 0) as server:
        say(f"whet: live picture at {server.address}")
        if not server.is_private:
            say("whet: everybody who reaches this machine can look: there is no password, and no encryption")
        elif host is not None:
            say(f"whet: {host} is this machine's name for itself: nobody else can look; --host 0.0.0.0 lets others")
        yield live


def short_name(source: str) -> str:
    """A source as others may see it: no folders, and of an address the host alone, as passwords stand anywhere else.

    >>> short_name("/home/ann/films/cat.mp4"), short_name("camera")
    ('cat.mp4', 'camera')
    >>> short_name("rtsp://ann:secret@10.0.0.7:554/live"), short_name("rtsp://10.0.0.7/user=ann_password=secret")
    ('rtsp://10.0.0.7:554', 'rtsp://10.0.0.7')
    """
    scheme, is_address, rest = source.partition("://")
    if not is_address:
        return Path(source).resolve().name
    # A password may have a slash in it, so that the host is what follows the last @.
    return f"{scheme}://{re.split('[/?#]', rest.rpartition('@')[2])[0]}"
