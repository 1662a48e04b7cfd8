"""News for everyone who watches: small messages that say what has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

Event = dict[str, Any]


class Events:
    """Calls all subscribers with every event, from the thread that publishes it.

    >>> events, heard = Events(), []
    >>> with events.subscribed(heard.append):
    ...     events.publish("state", revision=3)
    >>> events.publish("state", revision=4)
    >>> heard
    [{'type': 'state', 'revision': 3}]
    """

    def __init__(self) -> None:
        self._subscribers: list[Callable[[Event], None]] = []
        self._lock = Lock()

    @contextmanager
    def subscribed(self, callback: Callable[[Event], None]) -> Iterator[None]:
        """Call `callback` with every event; it must not block."""
        with self._lock:
            self._subscribers.append(callback)
        try:
            yield
        finally:
            with self._lock:
                self._subscribers.remove(callback)

    def publish(self, type: str, **facts: object) -> None:
        """Tell everyone."""
        with self._lock:
            subscribers = list(self._subscribers)
        for callback in subscribers:
            callback({"type": type, **facts})
