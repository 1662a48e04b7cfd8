"""Numbers of a running studio for Prometheus: requests, their seconds, and what is in the project."""

from __future__ import annotations

from collections import defaultdict
from threading import Lock

from whet.web.workspace import Workspace

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


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
        found["whet_cached_windows"] = ("Windows whose responses are kept.", workspace.rescorer.n_windows)
        estimate = workspace.estimate_at(workspace.history.current)
        if estimate is not None:
            found["whet_estimated_recall"] = ("Recall by the reference set.", estimate.recall)
            rate = estimate.false_positives_per_image
            found["whet_estimated_false_positives_per_image"] = ("False positives per image, by the same.", rate)
    return found
