"""The report on one page, rendered from the JSON files and figures of a folder: nothing is measured or judged here.

The claims of experiments that were not run come from their modules.
"""

from __future__ import annotations

import base64
import json
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from experiments.report import module_of
from experiments.table import EXPERIMENTS, Entry
from whet.io.files import write_atomically

FILE = "paper.html"
PAPER = (
    "S. Paisitkriangkrai, C. Shen and J. Zhang, Incremental Training of a Detector Using Online Sparse "
    "Eigen-decomposition, IEEE Transactions on Image Processing, 2011"
)
ORDER = ("reproduced", "partly", "not", "not measured")
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 }
th, td { border-bottom: 1px solid #ddd; padding: .4rem .6rem; text-align: left; vertical-align: top }
img { max-width: 100% }
code { background: #f3f3f3; padding: 0 .2rem }
.about { color: #555; font-size: 90% }
.verdict { font-weight: 600; white-space: nowrap }
.reproduced { color: #2a8c4a } .partly { color: #b86500 } .not { color: #c0392b } .not-measured { color: #777 }
"""


def results(folder: Path) -> dict[str, Any]:
    """The content of the JSON file of each experiment that the folder has."""
    paths = {entry.name: folder / f"{entry.name}.json" for entry in EXPERIMENTS}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.exists()}


def status(content: Any, skipped: str = "") -> str:  # noqa: ANN401 - JSON
    """How much of an experiment was measured.

    >>> status(None)
    'not run at paper size'
    >>> status({"size": "paper", "parts": {"done": 3, "planned": 10}, "seeds": [0, 1]})
    'paper size, 3 of 10 parts done (2 seeds)'
    """
    if content is None:
        return f"skipped: {skipped}" if skipped else "not run at paper size"
    done, planned = content["parts"]["done"], content["parts"]["planned"]
    size = "paper size" if content["size"] == "paper" else "not run at paper size; numbers of the small size"
    seeds = len(content["seeds"])
    partly = f", {done} of {planned} parts done ({seeds} {'seed' if seeds == 1 else 'seeds'})"
    return size if done == planned else size + partly


def duration(seconds: float) -> str:
    """Seconds or minutes.

    >>> duration(59.6), duration(3600)
    ('60 s', '60 min')
    """
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def about(content: Any) -> str:  # noqa: ANN401 - JSON
    """Seeds, machine and time of a measurement."""
    seeds, machine = content["seeds"], content["machine"]
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    times = f"{duration(content['seconds'])}, of the processor {duration(content['processor_seconds'])}"
    return f"{which}; {machine['cores']} cores of {machine['processor']}, shared with other work; {times}"


def claims(entry: Entry, content: Any) -> list[dict[str, str]]:  # noqa: ANN401 - JSON
    """The claims of an experiment with what was found; those of one that was not run, without."""
    if content is not None:
        found: list[dict[str, str]] = content["claims"]
        return found
    stated = module_of(entry).CLAIMS
    return [
        {"where": claim.where, "says": claim.says, "criterion": claim.criterion}
        | {"verdict": "not measured", "measured": status(None), "tried": ""}
        for claim in stated
    ]


def count_verdicts(contents: Mapping[str, Any]) -> str:
    """Numbers of verdicts at paper size; what was not run at it is not measured."""
    at_paper_size = {name: content for name, content in contents.items() if content["size"] == "paper"}
    verdicts = Counter(claim["verdict"] for e in EXPERIMENTS for claim in claims(e, at_paper_size.get(e.name)))
    return ", ".join(f"{verdicts[name]} {name}" for name in ORDER)


def _rows(contents: Mapping[str, Any]) -> Iterator[tuple[Entry, Any, Any]]:
    for entry in EXPERIMENTS:
        content = contents.get(entry.name)
        for claim in claims(entry, content):
            yield entry, content, claim


def html(folder: Path, skipped: Mapping[str, str] | None = None) -> str:
    """The page as one HTML file with its figures inside; `skipped` has the reasons of experiments that were not run."""
    contents, skipped = results(folder), skipped or {}
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<title>The paper, reproduced</title><style>{STYLE}</style></head><body>",
        f"<h1>The paper, reproduced</h1><p>{escape(PAPER)}.</p>",
        "<p>Each claim of the paper has a criterion, and its verdict is computed from the numbers of the run. "
        "Numbers are "
        "means and standard deviations over seeds. Where a criterion names p, differences count if they exceed the "
        "spread over seeds (paired t-test). A claim is reproduced if all parts of its criterion hold, partly if some "
        "do. "
        f"Verdicts at paper size: {escape(count_verdicts(contents))}.</p>",
        _summary(contents),
    ]
    parts += [_section(entry, contents.get(entry.name), folder, skipped.get(entry.name, "")) for entry in EXPERIMENTS]
    return "\n".join([*parts, "</body></html>\n"])


def _verdict(claim: Any, content: Any) -> str:  # noqa: ANN401 - JSON
    kind = claim["verdict"].replace(" ", "-")
    return f"<span class='verdict {kind}'>{claim['verdict']}{_small(content)}</span>"


def _small(content: Any) -> str:  # noqa: ANN401 - JSON
    return "" if content is None or content["size"] == "paper" else " (small size)"


def _summary(contents: Mapping[str, Any]) -> str:
    rows = [
        f"<tr><td><a href='#{entry.name}'>{escape(claim['where'])}</a></td><td>{escape(claim['says'])}</td>"
        f"<td>{_verdict(claim, content)}</td></tr>"
        for entry, content, claim in _rows(contents)
    ]
    return f"<table><tr><th>where</th><th>claim</th><th>verdict</th></tr>{''.join(rows)}</table>"


def heading(entry: Entry) -> str:
    """The title of an experiment, with a capital letter."""
    return entry.title[0].upper() + entry.title[1:]


def _section(entry: Entry, content: Any, folder: Path, skipped: str) -> str:  # noqa: ANN401 - JSON
    head = f"<h2 id='{entry.name}'>{escape(heading(entry))}</h2><p class='about'>{escape(entry.figure)}; "
    if content is None:
        command = f"python -m experiments {entry.name} --size paper"
        parts = [f"{head}{escape(status(None, skipped))}. <code>{escape(command)}</code></p>"]
    else:
        command = f"<code>{escape(content['command'])}</code>"
        parts = [f"{head}{escape(status(content))}. {command}; {escape(about(content))}.</p>"]
    for claim in claims(entry, content):
        tried = f"<br>What was tried: {escape(claim['tried'])}" if claim["tried"] else ""
        parts.append(
            f"<p><b>{escape(claim['says'])}</b> ({escape(claim['where'])}) {_verdict(claim, content)}<br>"
            f"Criterion: {escape(claim['criterion'])}<br>Measured: {escape(claim['measured'])}{tried}</p>"
        )
    for name in () if content is None else content["figures"]:
        path = folder / name
        if path.exists():
            data = base64.b64encode(path.read_bytes()).decode()
            parts.append(f"<p><img alt='{escape(name)}' src='data:image/png;base64,{data}'></p>")
        else:
            parts.append(f"<p class='about'>{escape(name)} shows images of a data set: the command draws it.</p>")
    return "\n".join(parts)


def markdown(folder: Path) -> str:
    """A page of the documentation: all claims with verdicts, and what was measured for each."""
    contents = results(folder)
    parts = [
        "# The paper on one page",
        f"{PAPER}.",
        "`make reproduce` measures all of this at a small size in minutes, and writes one HTML page with all figures. "
        "`python -m experiments all --size paper` takes hours, can be interrupted, and continues where it stopped. "
        "[The page of the stored results](results/paper.html) and this file are written by "
        "`python -m experiments page --out docs/results --markdown docs/paper.md`; a test compares them with the JSON.",
        "Each claim has a criterion, and its verdict is computed from the numbers. Numbers are means and standard "
        "deviations over seeds. Where a criterion names p, differences count if they exceed the spread over seeds "
        "(paired t-test, p below 0.05). A claim is *reproduced* if all parts of its criterion hold, *partly* if some "
        "do. A face is *found* if the IoU of its box with the true one is above 0.5, unless another number is given. "
        f"Verdicts at paper size: {count_verdicts(contents)}.",
        _markdown_summary(contents),
    ]
    for entry in EXPERIMENTS:
        parts += _markdown_section(entry, contents.get(entry.name))
    return "\n\n".join(part if part.startswith(("|", "#")) else _wrapped(part) for part in parts) + "\n"


def _wrapped(text: str) -> str:
    """Lines of at most 100 characters; those of a list are indented."""
    inner = "  " if text.startswith("- ") else ""
    lines = (textwrap.wrap(line, 100, subsequent_indent=inner, **_WHOLE) for line in text.split("\n"))
    return "\n".join("\n".join(wrapped) for wrapped in lines)


_WHOLE: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _markdown_summary(contents: Mapping[str, Any]) -> str:
    rows = [
        f"| {_cell(claim['where'])} | {_cell(claim['says'])} | {claim['verdict']}{_small(content)} |"
        for _, content, claim in _rows(contents)
    ]
    return "\n".join(["| where | claim | verdict |", "|---|---|---|", *rows])


def _markdown_section(entry: Entry, content: Any) -> list[str]:  # noqa: ANN401 - JSON
    title = f"## {heading(entry)}"
    if content is None:
        parts = [title, f"{entry.figure}; {status(None)}. `python -m experiments {entry.name} --size paper`"]
    else:
        link = f"[JSON](results/{entry.name}.json)"
        parts = [title, f"{entry.figure}; {status(content)}. `{content['command']}` ({link}); {about(content)}."]
    for claim in claims(entry, content):
        tried = f"\n  What was tried: {claim['tried']}" if claim["tried"] else ""
        parts.append(
            f"- **{claim['says']}** ({claim['where']}): *{claim['verdict']}*\n  Criterion: {claim['criterion']}\n"
            f"  Measured: {claim['measured']}{tried}"
        )
    return parts


def write(folder: Path, skipped: Mapping[str, str] | None = None, markdown_file: Path | None = None) -> list[Path]:
    """Write `folder/paper.html`, and the page of the documentation if a file is named for it."""
    written = [folder / FILE]
    write_atomically(written[0], html(folder, skipped).encode())
    if markdown_file is not None:
        write_atomically(markdown_file, markdown(folder).encode())
        written.append(markdown_file)
    return written
