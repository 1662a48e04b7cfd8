"""`python -m tests.faults --out FILE` interrupts every change at every file operation, and writes the numbers."""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.faults import studio
from tests.faults.campaign import (
    Result,
    concurrent_writers,
    crash_points,
    failing_writes,
    killed_trainings,
    random_kills,
)
from tests.faults.scenarios import SCENARIOS, TRAININGS


def main() -> int:
    """Run all scenarios; the exit code is 1 if anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument(
        "--scenario", action="append", choices=[*SCENARIOS, "studio"], help="one or more (default: all)"
    )
    parser.add_argument("--kills", type=int, default=0, help="also kill each change at so many random moments")
    parser.add_argument("--out", type=Path, help="JSON with the numbers")
    options = parser.parse_args()
    start, table = time.perf_counter(), {}
    for title, row in campaigns(options.scenario or [*SCENARIOS, "studio"], options.kills):
        table[title] = row
        print(title, row, flush=True)
        if options.out is not None:
            seconds = round(time.perf_counter() - start)
            options.out.write_text(json.dumps({"seconds": seconds, "campaigns": table}, indent=1) + "\n")
    return int(any(one["lost"] for one in table.values()))


def campaigns(names: list[str], kills: int = 0) -> Iterator[tuple[str, dict[str, float]]]:
    """The title and the numbers of each campaign."""
    for n in (2, 4, 8):
        done = concurrent_writers(n)
        row = {"cases": 8 * n, "crash": 0, "hang": 0, "uncaught": 0, "lost": done.lost + done.doubled}
        used = {"worst_seconds": round(done.seconds, 2), "worst_megabytes": round(done.megabytes)}
        yield f"{n} concurrent writers", row | used
    for name in [one for one in names if one in SCENARIOS]:
        yield f"killed at a file operation: {name}", numbers(crash_points([name]))
        yield f"write fails: {name}", numbers(failing_writes([name]))
    for name in [one for one in names if one in SCENARIOS and kills]:
        yield f"killed at random moments: {name}", numbers(random_kills(name, kills))
    for name in TRAININGS if kills else ():
        yield f"killed and resumed: training of {name}", numbers(killed_trainings(name, kills))
    if "studio" not in names:
        return
    if not studio.is_available():
        print("studio skipped: strace is not installed, or may not trace", file=sys.stderr)
        return
    yield "killed at a system call: studio", numbers(studio.interruptions(errors=(), kills=True))
    yield "system call fails: studio", numbers(studio.interruptions(kills=False))


def numbers(results: Iterable[Result]) -> dict[str, float]:
    """Cases, findings and the worst of all; a process that is killed on purpose is no crash."""
    every = list(results)
    for one in every:
        if one.loss or one.outcome.kind == "uncaught":
            print(one.operation, one.fault, one.outcome.kind, one.outcome.text, one.loss, file=sys.stderr, flush=True)
    kinds = [one.outcome.kind for one in every if one.outcome.text != "SIGKILL"]
    return {
        "cases": len(every),
        **{kind: kinds.count(kind) for kind in ("crash", "hang", "uncaught")},
        "lost": sum(bool(one.loss) for one in every),
        "worst_seconds": round(max(one.outcome.seconds for one in every), 2),
        "worst_megabytes": round(max(one.outcome.megabytes for one in every)),
    }


if __name__ == "__main__":
    sys.exit(main())
