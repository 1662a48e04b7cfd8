"""`whet demo`: a short demonstration on images that every installation has."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from whet.cli.options import Seed
from whet.cli.output import progress_bar, start


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Output directory.")] = Path("demo-out"),
    seed: Seed = 0,
) -> None:
    """Run a short demonstration: correct a face detector, train a van detector, learn more, learn digits online.

    Needs the extra 'demo' (pip install 'whet[demo]'). Takes about a minute.

    \b
    Examples:
      whet demo
      whet demo --out images --seed 1
    """
    from whet.demo.drawn_vans import learn_more_vans, train_on_vans
    from whet.demo.faces_digits import correct_faces, learn_digits
    from whet.io.files import prepared_folder
    from whet.plots import figure

    figure.check_installed()
    prepared_folder(out)
    start()
    summary, files = correct_faces(out)
    typer.echo(f"1. Correct the bundled face detector\n{summary}")
    typer.echo(f"Wrote {', '.join(map(str, files))}\n")
    typer.echo("2. Train a detector of your own and correct it")
    with progress_bar("training on vans") as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        summary, files = train_on_vans(out, seed, progress)
    typer.echo(f"{summary}\nWrote {', '.join(map(str, files))}; images, annotations and models: {out / 'vans'}/\n")
    typer.echo("3. Learn more vans: remembered at once, learned everywhere after some seconds")
    with progress_bar("learning vans") as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        typer.echo(f"{learn_more_vans(out, seed, progress)}\n")
    typer.echo("4. Classify digits online, one sample at a time")
    with progress_bar("learning digits") as progress:
        summary, file = learn_digits(out, seed, progress)
    typer.echo(f"{summary}\nWrote {file}")
