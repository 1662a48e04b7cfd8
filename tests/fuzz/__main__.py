"""`python -m tests.fuzz` runs the fuzzers without end, or for so many cases; findings are printed and kept as files."""

import argparse
import json
import sys
import time
from collections import Counter
from itertools import count, islice
from pathlib import Path

from tests.fuzz.harness import campaign
from tests.fuzz.targets import TARGETS

BATCH = 200


def main() -> int:
    """Run the campaign; the exit code is 1 if there is a finding."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="one or more (default: all)")
    parser.add_argument("--cases", type=int, help="number of cases over all targets (default: no end)")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="directory for inputs that fail")
    parser.add_argument("--out", type=Path, help="JSON with the numbers, written after every round")
    parser.add_argument("--guided", action="store_true", help="search by coverage with atheris, one target, no end")
    options = parser.parse_args()
    names = [name for name in options.target or TARGETS if TARGETS[name].seeds()]
    if options.guided:
        return guided(names[0])
    for target in (TARGETS[name] for name in names):  # processes share what is compiled and loaded before they begin
        for data in () if target.starts_threads else target.seeds():
            target.run(data)
    numbers = {name: Numbers() for name in names}
    start, todo = time.perf_counter(), options.cases
    for first in count(options.first, BATCH):
        for name in names:
            n = BATCH if todo is None else min(BATCH, todo)
            run(name, range(first, first + n), numbers[name], options.findings)
            todo = None if todo is None else todo - n
        table = {name: one.table() for name, one in numbers.items()}
        if options.out is not None:
            seconds = round(time.perf_counter() - start)
            options.out.write_text(json.dumps({"seconds": seconds, "targets": table}, indent=1) + "\n")
        print(f"{sum(one['cases'] for one in table.values()):,} cases: {json.dumps(table)}", flush=True)
        if todo is not None and todo <= 0:
            break
    return int(any(one.findings for one in numbers.values()))


class Numbers:
    """What came of the cases of a target."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.seconds = self.megabytes = 0.0
        self.findings: set[str] = set()

    def table(self) -> dict[str, float]:
        """Numbers for JSON."""
        kinds = {kind: self.kinds[kind] for kind in ("accepted", "refused", "uncaught", "crash", "hang")}
        worst = {"worst_seconds": round(self.seconds, 2), "worst_megabytes": round(self.megabytes)}
        return {"cases": self.kinds.total(), **kinds, **worst}


def run(name: str, seeds: range, numbers: Numbers, folder: Path) -> None:
    """Run some cases of a target; the input of every new kind of finding is kept."""
    target = TARGETS[name]
    for outcome in campaign(lambda seed: target.run(target.case(seed)), seeds, batch=BATCH):
        numbers.kinds[outcome.kind] += 1
        numbers.seconds = max(numbers.seconds, outcome.seconds)
        numbers.megabytes = max(numbers.megabytes, outcome.megabytes)
        cause = outcome.text.strip().rpartition("\n")[2][:200]
        if not outcome.is_fine and f"{outcome.kind} {cause}" not in numbers.findings:
            numbers.findings.add(f"{outcome.kind} {cause}")
            folder.mkdir(exist_ok=True)
            (folder / f"{name}-{outcome.seed}").write_bytes(target.case(outcome.seed))
            print(f"{name} {outcome.seed}: {outcome.kind}\n{outcome.text}", file=sys.stderr, flush=True)


def guided(name: str) -> int:
    """Search for inputs of one target by the branches that they reach, with atheris, from the sound files on."""
    import atheris

    target, corpus = TARGETS[name], Path("build") / "fuzz" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(islice(target.seeds(), 100)):
        (corpus / f"seed-{number}").write_bytes(data)
    atheris.instrument_all()
    atheris.Setup(
        [sys.argv[0], str(corpus), "-timeout=60", "-rss_limit_mb=4000"], lambda data: target.run(data) and None
    )
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
