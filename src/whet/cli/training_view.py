"""What a person sees of a training: a live view in a terminal, a line for each stage elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from whet.cli.warning_lines import warnings_as_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from whet.training.events import Event


@contextmanager
def training_view(*, quiet: bool) -> Iterator[tuple[Callable[[Event], None], list[Warning | str]]]:
    """Yields what training tells its events to, and a list of the warnings on the way, which become lines."""
    from rich.console import Console

    console = Console(stderr=True)
    with warnings_as_lines(console) as warned:
        if quiet:
            yield (lambda _: None), warned
        elif console.is_terminal:
            with _live(console) as tell:
                yield tell, warned
        else:
            yield _tell_stages, warned


def _tell_stages(event: Event) -> None:
    from whet.training.events import Mining, WeakAdded

    if not isinstance(event, WeakAdded | Mining):
        typer.echo(str(event), err=True)


@contextmanager
def _live(console: Any) -> Iterator[Callable[[Event], None]]:  # noqa: ANN401 - rich is imported when needed
    """Finished stages scroll by; below them one line tells what is being done, and how long it will take."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from whet.training.events import Mining, StageStarted, WeakAdded, duration

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("begins", total=1.0)

        def tell(event: Event) -> None:
            left = "" if event.seconds_left is None else f", about {duration(event.seconds_left)} left"
            match event:
                case WeakAdded():
                    said = (
                        f"stage {event.stage}: {event.n_weak} weak learners, detection rate "
                        f"{event.detection_rate:.1%}, false positives {event.false_positive_rate:.1%}{left}"
                    )
                    progress.update(task, description=said, completed=event.n_weak / event.most_weak)
                case Mining():
                    said = (
                        f"stage {event.stage}: {event.n_found:,} of {event.n_wanted:,} "
                        f"{'held-out ' * event.held_out}negatives, {event.n_looked_at:,} windows{left}"
                    )
                    progress.update(task, description=said, completed=event.n_found / max(event.n_wanted, 1))
                case StageStarted():
                    progress.update(task, description=f"stage {event.stage}: features{left}", completed=0.0)
                case _:
                    console.print(str(event), highlight=False, markup=False)

        yield tell
