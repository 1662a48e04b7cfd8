"""What commands print: progress, results, corrections, warnings and numbers; and how they react to Ctrl-C."""

from __future__ import annotations

import atexit
import gc
import json
import signal
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from whet.cli.options import CTRL_C, ExitCode

if TYPE_CHECKING:
    from whet.corrections.records import Record
    from whet.corrections.reference import Estimate
    from whet.evaluation.runs import EvaluationRun

    BeforeAfter = tuple[EvaluationRun, EvaluationRun]


def start(*, quiet: bool = False) -> None:
    """Shorten the start and the end of the process; announce that the first run compiles.

    At exit Python searches all objects for unreachable cycles: 0.4 s for the half million objects of numba. Frozen
    objects are left out, and the operating system frees their memory a moment later.
    """
    atexit.register(gc.freeze)
    from whet._kernels.jit import is_compiled
    from whet._kernels.window_scan import scan_windows

    if not quiet and not is_compiled(scan_windows):
        typer.echo("Compiling for this CPU; the first run takes up to a minute longer.", err=True)


@contextmanager
def progress_bar(title: str, *, hidden: bool = False) -> Iterator[Callable[[float], None]]:
    """Show a progress bar with the time left; yields a function that takes the fraction done, from 0 to 1.

    If it is hidden, or standard error is not a terminal, nothing is drawn and rich is not imported.
    """
    if hidden or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    # rich would otherwise redirect standard output to standard error.
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda share: bar.update(task, completed=share)


# Steps of a refit with the share of the time that they take together, up to their end.
REFIT_STEPS = {"cutting samples": (0.0, 0.4), "growing trees": (0.4, 0.55), "validation": (0.55, 1.0)}


@contextmanager
def refit_bar(*, hidden: bool = False) -> Iterator[Callable[[str, float], None]]:
    """A progress bar of a refit; yields what `Detector.refit` calls with the name of a step and its share done."""
    with progress_bar("refitting", hidden=hidden) as bar:

        def progress(step: str, share: float) -> None:
            first, last = REFIT_STEPS.get(step, (0.0, 1.0))
            bar(first + share * (last - first))

        yield progress


def plural(n: int, singular: str, plural: str | None = None) -> str:
    """A count with its noun.

    >>> plural(1, "box", "boxes"), plural(1200, "image")
    ('1 box', '1,200 images')
    """
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def finite_or_none(value: float) -> float | None:
    """A finite number, or None because JSON has no infinity and no NaN.

    >>> finite_or_none(float("nan")), finite_or_none(0.5)
    (None, 0.5)
    """
    return value if isfinite(value) else None


def rounded(value: float | None) -> str:
    """Three decimal places, or "none".

    >>> rounded(0.12345), rounded(None)
    ('0.123', 'none')
    """
    return "none" if value is None or not isfinite(value) else f"{value:.3f}"


MAX_LISTED = 10  # problems printed one by one; the others are only counted


def say(line: str, *, err: bool = False) -> None:
    """Print one line; control characters of names and notes, which come from anywhere, are escaped."""
    from whet.io.files import printable

    typer.echo(printable(line), err=err)


def say_json(value: object, *, indent: int | None = 1) -> None:
    """Print a result as JSON, which has no infinity and no NaN."""
    typer.echo(json.dumps(value, indent=indent, allow_nan=False))


def warn(message: str) -> None:
    """Print a line to standard error; standard output is for results."""
    say(f"whet: {message}", err=True)


def write_text(pieces: Iterable[str], out: Path | None) -> None:
    """Write text to a file atomically, or to standard output piece by piece."""
    if out is None:
        for piece in pieces:
            typer.echo(piece, nl=False)
        return
    from whet.io.files import write_atomically

    write_atomically(out, "".join(pieces).encode(errors="surrogateescape"))  # file names may be any bytes


def print_list(title: str, items: Sequence[object]) -> None:
    """Print the first items to standard error, one per line, and a title before them if there is one."""
    if title:
        warn(f"{title}:")
    indent = "  " * bool(title)
    for item in items[:MAX_LISTED]:
        say(f"{indent}{item}", err=True)
    if len(items) > MAX_LISTED:
        say(f"{indent}... and {len(items) - MAX_LISTED:,} more", err=True)


def exit_if_skipped(errors: Sequence[object], n: int) -> None:
    """List the images that could not be read, of `n`; exit with code 5.

    If none could be read, the code is 3 if none was found, as at a wrong URL, and else 1.
    """
    if errors:
        print_list(f"skipped {len(errors):,} of {plural(n, 'image')}", errors)
        if len(errors) < n:
            raise typer.Exit(ExitCode.SOME_SKIPPED)
        are_missing = all(isinstance(getattr(error, "__cause__", None), FileNotFoundError) for error in errors)
        raise typer.Exit(ExitCode.DATA_MISSING if are_missing else ExitCode.FAILED)


@contextmanager
def warnings_as_lines(console: Any) -> Iterator[list[Warning | str]]:  # noqa: ANN401 - rich is imported when needed
    """Print Python warnings as lines on a rich console; yields the list that collects them."""
    from whet.io.files import printable

    collected: list[Warning | str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")

        def show(message: Warning | str, *_: object, **__: object) -> None:
            collected.append(message)
            console.print(printable(f"whet: Warning: {message}"), highlight=False, markup=False, soft_wrap=True)

        warnings.showwarning = show
        yield collected


def figures(run: EvaluationRun) -> dict[str, Any]:
    """Counts and rates of an evaluation, for JSON."""
    return {
        "images": len(run.paths),
        "objects": int(run.truths.sum()),
        "missed": run.n_missed,
        "false_positives": run.n_false_positives,
        "recall": finite_or_none(run.recall),
        "false_positives_per_image": run.n_false_positives / len(run.paths),
        "average_precision": finite_or_none(run.evaluation.average_precision),
    }


def before_and_after(runs: BeforeAfter | None) -> dict[str, Any] | None:
    """The figures of two evaluations, for JSON."""
    return None if runs is None else {"before": figures(runs[0]), "after": figures(runs[1])}


def held_out_lines(runs: BeforeAfter) -> Iterator[str]:
    """A small table of the results on held-out images, before and after."""
    old, new = map(figures, runs)
    yield f"Held-out results ({plural(old['images'], 'image')}, {plural(old['objects'], 'object')}):"
    yield f"  {'':<26}   before    after"
    for name in ("recall", "false_positives_per_image", "average_precision"):
        yield f"  {name.replace('_', ' '):<26}  {rounded(old[name]):>7}  {rounded(new[name]):>7}"


# Characters of an id that are printed; `whet unlearn` takes them.
SHORT_ID = 8


def box_text(box: Sequence[float]) -> str:
    """A box (x1, y1, x2, y2) as x,y,w,h, as the options of `whet learn` take it."""
    x1, y1, x2, y2 = box
    return ",".join(f"{round(value, 1):.6g}" for value in (x1, y1, x2 - x1, y2 - y1))


def as_line(record: Record) -> str:
    """A correction as one line of text."""
    note = f"  {record.note}" if record.note else ""
    return f"{record.id[:SHORT_ID]}  {record.kind_name} {record.name or 'unnamed'} {box_text(record.box)}{note}"


def as_fields(record: Record, unsatisfied: Collection[str] = ()) -> dict[str, Any]:
    """All of a record but its windows, for JSON; `holds` is None for examples, which are counted, not satisfied."""
    facts = record.table()
    facts |= {"id": record.id, "time": record.iso_time, "kind": record.kind_name, "file_name": facts.pop("name")}
    facts |= {"box": record.sized_box, "site": record.site}
    del facts["min_score"]
    return facts | {"holds": None if record.kind == "example" else record.id not in unsatisfied}


def unsatisfied_lines(records: Sequence[Record]) -> Iterator[str]:
    """The corrections that do not hold, one per line."""
    if records:
        yield f"Not satisfied: {plural(len(records), 'correction')} (a contradiction, or beyond these weak learners)"
        yield from (f"  {as_line(record)}" for record in records)


def estimate_fields(estimate: Estimate | None) -> dict[str, float] | None:
    """An estimate for JSON."""
    return None if estimate is None else asdict(estimate)


def count_text(records: Sequence[Record]) -> str:
    """Numbers of corrections and examples.

    >>> count_text([])
    '0 corrections'
    """
    n_examples = sum(record.kind == "example" for record in records)
    text = plural(len(records) - n_examples, "correction")
    return f"{text}, {plural(n_examples, 'example')}" if n_examples else text


@contextmanager
def nothing_changed_on_ctrl_c() -> Iterator[None]:
    """On Ctrl-C, report that nothing was changed and exit with code 130."""
    try:
        yield
    except KeyboardInterrupt:
        warn("stopped; nothing was changed")
        raise typer.Exit(CTRL_C) from None


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C while a model is changed and written, so that a command knows whether it was."""
    before = signal.getsignal(signal.SIGINT)
    if before is None:  # set outside Python: it raises nothing here and could not be restored
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# Windows has no SIGHUP.
STOP_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


T = TypeVar("T")


class StopSignals:
    """Ctrl-C, SIGTERM and SIGHUP interrupt waiting for the next item, never the work on one.

    The work on the current item, and everything after the loop, is finished. A signal that is ignored, as SIGHUP under
    nohup, stays ignored. At the end the previous handlers are set again. Where a signal comes while waiting, or during
    the work before, `between` raises `KeyboardInterrupt`.

    >>> with StopSignals() as stop:
    ...     list(stop.between("ab"))
    ['a', 'b']
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._is_waiting = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        for number in STOP_SIGNALS:
            before = signal.getsignal(number)
            if before not in (None, signal.SIG_IGN):  # None: set outside Python, and could not be restored
                self._before[number] = before
                signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _receive(self, number: int, _: object) -> None:
        self.received = number
        if self._is_waiting:
            raise KeyboardInterrupt

    def between(self, items: Iterable[T]) -> Iterator[T]:
        """The items; raises `KeyboardInterrupt` instead of the next one after a signal."""
        iterator = iter(items)
        while True:
            self._is_waiting = True
            try:
                if self.received is not None:
                    raise KeyboardInterrupt
                item = next(iterator)
            except StopIteration:
                return
            finally:
                self._is_waiting = False
            yield item

    @property
    def exit_code(self) -> int:
        """128 and the number of the signal, as shells report it; 130 for Ctrl-C."""
        return CTRL_C if self.received is None else 128 + self.received
