"""`whet merge`: combine the corrections of several copies of a detector."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.corrections import as_fields, count_text, estimate_fields, unsatisfied_lines
from whet.cli.models import Force, changed, is_model_file, model_out
from whet.cli.options import Json, Model, Quiet
from whet.cli.output import plural, say, say_json, start, warn

if TYPE_CHECKING:
    from whet.detector.detector import Detector


def merge(
    model: Model,
    others: Annotated[
        list[str], typer.Argument(metavar="OTHERS", help="Copies of the same detector with other corrections.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Output model; may be MODEL itself.")],
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Combine the corrections of several copies of a detector into one, exactly, without any images.

    The result equals a detector that learned all corrections and examples itself; those that several models share
    count once. Corrections that contradict one another are listed. Box offset, operating points and provenance are
    those of MODEL. Samples that were counted without records before the models were copied count twice.

    \b
    Examples:
      whet merge door.whet yard.whet --out both.whet
      whet merge main.whet camera1.whet camera2.whet --out main.whet
    """
    start(quiet=quiet)
    from whet.detector.storage import load

    files = [Path(name).resolve() if is_model_file(name) else name for name in (model, *others)]
    twice = next((name for name, n in Counter(map(str, files)).items() if n > 1), None)
    if twice is not None:
        raise typer.BadParameter(f"{twice} is given twice; give each model once")
    target = model_out(model, out, force=force)
    loaded = [load(name) for name in others]
    with changed(model, target) as detector:
        sources = [(model, detector.copy()), *zip(others, loaded, strict=True)]
        for name, other in sources[1:]:
            _merge(detector, other, model, name)
    n_all, merged = sum(len(one.records) for _, one in sources), len(detector.records)
    if as_json:
        parts = [_fields(name, one) for name, one in sources]
        result = {"merged": _fields(str(target), detector), "sources": parts, "shared": n_all - merged}
        unsatisfied = detector.unsatisfied
        result["unsatisfied"] = [as_fields(record, [record.id]) for record in unsatisfied]
        say_json(result)
    elif not quiet:
        for name, one in sources:
            say(f"{name}: {count_text(one.records)}")
        say(f"Wrote {target}: {count_text(detector.records)} ({n_all - merged:,} shared)")
        for line in unsatisfied_lines(detector.unsatisfied):
            say(line)
    n_counted = sum(not one.counts.is_empty for _, one in sources)
    if n_counted > 1 and not quiet:
        warn(
            f"Warning: {plural(n_counted, 'model has', 'models have')} samples without records; those from before the "
            "models were copied count twice. Use whet learn, which keeps records, to avoid this"
        )


def _merge(detector: Detector, other: Detector, model: str, name: str) -> None:
    from whet.errors import CannotMergeError

    if other.base_id != detector.base_id:
        raise CannotMergeError(
            f"{name} has another base ({other.base_id[:12]}) than {model} ({detector.base_id[:12]}); expected copies "
            "of one detector. Nothing was written"
        )
    detector.merge(other)


def _fields(name: str, detector: Detector) -> dict[str, Any]:
    n_examples = sum(record.kind == "example" for record in detector.records)
    return {
        "model": name,
        "corrections": len(detector.records) - n_examples,
        "examples": n_examples,
        "estimate": estimate_fields(detector.estimate),
    }
