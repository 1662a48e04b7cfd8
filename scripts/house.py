"""Measure how easy it is to find one's way in the code: `python -m scripts.house`.

Prints JSON. Compare two layouts by their checkouts, or by the JSON of an earlier run:

    python -m scripts.house --root ../old > before.json
    python -m scripts.house --compare before.json > both.json

With `--compare` the JSON on standard output holds both sides, and a Markdown table goes to standard error.

- `modules`: files and lines of src/whet, and modules per package.
- `one_importer`: modules that exactly one other module of src/whet imports, at the top or inside a function. A name
  that a package re-exports counts as an import of the module that defines it.
- `loaded_for_detection`: modules of whet, and heavy packages, in a fresh process that loads a detector and runs it.
- `touched`: modules and functions of whet that run in one detection, one correction, one small training and one
  tracked video frame. Imports and loading of the model are not counted. A kernel counts where Python calls it; a kernel
  called by another kernel is invisible, and so are all kernels from Python 3.12 on. Compare runs of one interpreter.
  `modules_beyond_detect` are those that a correction runs and a detection does not: what a reader has to open who
  knows how detection works.
- `public_names`: `__all__` of whet and of the modules one level below.
- `documented_deep_names`: names in the API pages of docs/ that users import from two or more levels below whet; `of` is
  the number of all names there.
- `import_seconds` (only with `--time`): processor time of a fresh process that detects in one small image. With
  `--compare CHECKOUT` the two take turns. Do not compare times of separate runs: they differ more than the layouts do.

A figure that cannot be measured is an object with `error`, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from statistics import median
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Figure = dict[str, Any]
Action = Callable[[], object]

PACKAGE = "whet"
HEAVY = ("matplotlib", "pandas", "rich", "scipy", "sklearn", "typer")
TIMED_RUNS = 5
DETECT_ONCE = """
import numpy as np
import whet
whet.load("face").detect(np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8))
"""
LIST_LOADED = "import json, sys; print(json.dumps(sorted(sys.modules)))"
LIST_PUBLIC = """
import importlib, json, sys
print(json.dumps({name: list(getattr(importlib.import_module(name), "__all__", ())) for name in sys.argv[1:]}))
"""


class MeasurementError(Exception):
    """A figure could not be measured."""


# --- Source files -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checkout:
    """A checkout of the project, with its modules by dotted name; a package is named by its `__init__.py`."""

    root: Path

    @property
    def source(self) -> Path:
        """Directory that Python imports from."""
        return self.root / "src"

    @cached_property
    def paths(self) -> dict[str, Path]:
        """File of each module."""
        files = sorted((self.source / PACKAGE).rglob("*.py"))
        if not files:
            raise MeasurementError(f"no Python files in {self.source / PACKAGE}; expected a checkout of {PACKAGE}")
        return {self._name(path): path for path in files}

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        """Syntax tree of each module."""
        try:
            return {name: ast.parse(path.read_text(encoding="utf-8"), str(path)) for name, path in self.paths.items()}
        except SyntaxError as error:
            raise MeasurementError(f"{error.filename}, line {error.lineno}: {error.msg}") from error

    @property
    def plain_modules(self) -> list[str]:
        """Modules other than `__init__.py` and `__main__.py`."""
        return [name for name, path in self.paths.items() if path.stem not in ("__init__", "__main__")]

    def is_package(self, name: str) -> bool:
        """Tell whether the module is an `__init__.py`."""
        return self.paths[name].stem == "__init__"

    def module_of(self, name: str) -> str | None:
        """The longest leading part of a dotted name that is a module."""
        while name and name not in self.paths:
            name = name.rpartition(".")[0]
        return name or None

    def _name(self, path: Path) -> str:
        parts = path.relative_to(self.source).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(checkout: Checkout) -> Figure:
    """Count modules and lines."""
    paths = checkout.paths
    packages = Counter(name.split(".")[1] for name in checkout.plain_modules if name.count(".") > 1)
    return {
        "count": len(paths),
        "modules_without_init": sum(not checkout.is_package(name) for name in paths),
        "lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths.values()),
        "packages": dict(sorted(packages.items())),
    }


def one_importer(checkout: Checkout) -> Figure:
    """Find modules that exactly one other module imports."""
    importers = Counter(target for name in checkout.paths for target in imported_by(checkout, name))
    found = [name for name in checkout.plain_modules if importers[name] == 1]
    return {"count": len(found), "share": round(len(found) / len(checkout.plain_modules), 3), "names": found}


def imported_by(checkout: Checkout, name: str) -> set[str]:
    """Other modules of the checkout that a module imports anywhere in its text."""
    found: set[str] = set()
    for base, member in import_statements(checkout, name):
        found |= set(resolved(checkout, base, member))
    return found - {name}


def import_statements(checkout: Checkout, name: str) -> Iterator[tuple[str, str | None]]:
    """Yield (module, imported name or None), with relative imports made absolute."""
    home = name if checkout.is_package(name) else name.rpartition(".")[0]
    for node in ast.walk(checkout.trees[name]):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = home.split(".")[: len(home.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, node.module] if node.module else above)
            yield from ((base, alias.name) for alias in node.names)


def resolved(checkout: Checkout, base: str, member: str | None) -> Iterator[str]:
    """Modules behind one import: the module itself, and the one behind a name that its package re-exports."""
    if member is not None and f"{base}.{member}" in checkout.paths:
        yield f"{base}.{member}"
    elif base in checkout.paths:
        yield base
        if member is not None and checkout.is_package(base):
            for origin, name in import_statements(checkout, base):
                if name == member and origin != base:
                    yield from resolved(checkout, origin, name)


# --- Documentation ----------------------------------------------------------------------------------------------------

# `.. autoclass:: name` or ```` ```{autoclass} name ````, and the option lines below it.
DIRECTIVE = re.compile(
    r"^(?:\.\. |[`:]{3,}\{)auto(\w+)(?:::|\})[ \t]*([\w.]+)[ \t]*\n((?:[ \t]*:.*\n|[ \t]+\S.*\n)*)", re.MULTILINE
)
MEMBERS = re.compile(r"^[ \t]*:members:(.*(?:\n[ \t]+[^\s:].*)*)", re.MULTILINE)


def documented_deep_names(checkout: Checkout) -> Figure:
    """Count names in the API pages that are two or more levels below the package."""
    found: set[str] = set()
    for page in sorted((checkout.root / "docs").rglob("*.md")):
        for kind, target, options in DIRECTIVE.findall(page.read_text(encoding="utf-8") + "\n"):
            found |= set(names_of_directive(checkout, kind, target, options))
    deep = sorted(name for name in found if levels_below(checkout, name) >= 2)
    return {"count": len(deep), "of": len(found), "names": deep}


def names_of_directive(checkout: Checkout, kind: str, target: str, options: str) -> Iterator[str]:
    """Names that one `auto...` directive documents; members of classes are not names of their own."""
    if checkout.module_of(target) is None:
        return
    if kind != "module":
        yield target
        return
    members = MEMBERS.search(options)
    if members is None:
        return
    listed = re.findall(r"\w+", members[1])
    if target not in checkout.paths:
        raise MeasurementError(f"docs: automodule of {target}, which is not a module")
    yield from (f"{target}.{name}" for name in listed or public_definitions(checkout.trees[target]))


def public_definitions(tree: ast.Module) -> list[str]:
    """`__all__` if it is a plain list, else public functions and classes with a docstring, as Sphinx takes them."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            assert isinstance(node, ast.Assign)
            return list(ast.literal_eval(node.value))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    public = [node for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]
    return [node.name for node in public if ast.get_docstring(node)]


def levels_below(checkout: Checkout, name: str) -> int:
    """Levels between the package and the module of a name: 0 for `whet.load`, 2 for `whet.io.images.as_grey`."""
    return (checkout.module_of(name) or "").count(".")


def public_names(checkout: Checkout) -> Figure:
    """Count the names in `__all__` of the package and of the modules one level below."""
    below = [name for name in checkout.paths if name.count(".") == 1 and not name.split(".")[1].startswith("_")]
    names: dict[str, list[str]] = json.loads(run_python(checkout, "-c", LIST_PUBLIC, PACKAGE, *below))
    found = {module: each for module, each in names.items() if each}
    return {"count": sum(map(len, found.values())), "in_whet": len(found.get(PACKAGE, ())), "names": found}


# --- Processes of their own -------------------------------------------------------------------------------------------


def run_python(checkout: Checkout, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run Python on a checkout; return what it prints."""
    variables = {**os.environ, "PYTHONPATH": str(checkout.source), **(environment or {})}
    command = [sys.executable, "-P", *arguments]
    done = subprocess.run(command, env=variables, cwd=checkout.root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MeasurementError("\n".join(done.stderr.strip().splitlines()[-3:]) or f"exit code {done.returncode}")
    return done.stdout


def loaded_for_detection(checkout: Checkout) -> Figure:
    """Count modules in a fresh process after one detection."""
    loaded = json.loads(run_python(checkout, "-c", DETECT_ONCE + LIST_LOADED))
    own = [name for name in loaded if name.split(".")[0] == PACKAGE]
    return {"modules": len(own), "heavy": [name for name in HEAVY if name in loaded], "names": own}


def touched(checkout: Checkout) -> Figure:
    """Count modules and functions that run in each scenario."""
    found = {name: measured(partial(touched_in, scenario=name), checkout) for name in SCENARIOS}
    detect, learn = found["detect"], found["learn"]
    if "names" in detect and "names" in learn:
        learn["modules_beyond_detect"] = len(modules_of(learn["names"]) - modules_of(detect["names"]))
    return found


def touched_in(checkout: Checkout, scenario: str) -> Figure:
    """Count modules and functions that run in one scenario."""
    output = run_python(checkout, str(Path(__file__).resolve()), "--root", str(checkout.root), "--worker", scenario)
    functions = json.loads(output.splitlines()[-1])
    if not functions:
        raise MeasurementError(f"no function below {checkout.source / PACKAGE} ran: another copy was imported")
    return {
        "modules": len(modules_of(functions)),
        "functions": len(functions),
        "names": functions,
    }


def modules_of(functions: Sequence[str]) -> set[str]:
    """The files of functions.

    >>> sorted(modules_of(["a.py:f", "a.py:C.g", "b.py:f"]))
    ['a.py', 'b.py']
    """
    return {name.partition(":")[0] for name in functions}


def import_seconds(*checkouts: Checkout) -> list[Figure]:
    """Measure processor seconds, user and system, of fresh processes that detect once; checkouts take turns."""
    seconds: list[list[float]] = [[] for _ in checkouts]
    with tempfile.TemporaryDirectory() as bytecode:  # not beside the source, which somebody may be editing
        environment = {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
        for _ in range(1 + TIMED_RUNS):
            for checkout, each in zip(checkouts, seconds, strict=True):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                run_python(checkout, "-c", DETECT_ONCE, environment=environment)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                each.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    warm = [each[1:] for each in seconds]  # the first run fills the caches
    return [{"minimum": round(min(each), 3), "median": round(median(each), 3)} for each in warm]


# --- Scenarios: each prepares what it needs, and returns the part that is measured ------------------------------------


def detect_image(_: Path) -> Action:
    """Detect in one image."""
    detector, image = face_detector(), image_with_face()
    return lambda: detector.detect(image)


def learn_correction(_: Path) -> Action:
    """Learn that one detection is wrong."""
    detector, image = face_detector(), image_with_face()
    boxes = detector.detect(image).boxes[:1]
    if not len(boxes):
        raise MeasurementError("the detector finds nothing to correct in the sample image")
    return lambda: detector.learn(image, boxes, [False])


def train_detector(folder: Path) -> Action:
    """Train a tiny detector of drawn objects."""
    train = first_of("whet:train")
    annotations = drawn_objects(folder)
    settings = accepted_settings(lambda names: train(annotations, **names, threads=1))
    return lambda: train(annotations, **settings, threads=1)


def track_frame(_: Path) -> Action:
    """Detect and track in one video frame, the second of a video, without learning."""
    tracker = first_of("whet.tracking:Tracker", "whet.tracking.tracker:Tracker", *OLDER_TRACKERS)(face_detector())
    image = image_with_face()
    names = [name for name in ("update", "track", "look") if hasattr(tracker, name)]
    if not names:
        raise MeasurementError(f"{type(tracker).__name__} has none of the methods update, track, look")
    look = getattr(tracker, names[0])
    look(image)
    return lambda: look(image)


SCENARIOS: dict[str, Callable[[Path], Action]] = {
    "detect": detect_image,
    "learn": learn_correction,
    "train": train_detector,
    "track": track_frame,
}
OLDER_TRACKERS = ("whet.tracking:Watcher", "whet.tracking.tracker:Watcher", "whet.training.watching:Watcher")
# Each setting of a training under the names that layouts give it.
SETTINGS: dict[tuple[str, ...], int] = {
    ("stages", "n_stages", "max_stages"): 2,
    ("learners", "n_learners", "max_weak_learners", "n_weak"): 10,
    ("most_features", "max_features", "n_features"): 300,
    ("n_negatives", "negatives_per_stage", "stage_negatives"): 300,
}


def face_detector() -> Any:  # noqa: ANN401 - a class of the checkout that is measured
    """Load a detector that has run nothing yet."""
    return first_of("whet:load")("face")


def first_of(*places: str) -> Any:  # noqa: ANN401 - whatever the checkout holds
    """Return the first `module:name` that can be imported."""
    errors = []
    for place in places:
        module, _, name = place.partition(":")
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            errors.append(f"{place} ({error})")
    raise MeasurementError(f"cannot import any of {', '.join(errors)}; add the new name to {Path(__file__).name}")


def accepted_settings(call: Callable[[dict[str, int]], object]) -> dict[str, int]:
    """The settings under names that `call` accepts: a name that it does not know is replaced by the next."""
    names = [list(aliases) for aliases in SETTINGS]
    while True:
        chosen = dict(zip((each[0] for each in names), SETTINGS.values(), strict=True))
        try:
            call(chosen)
            return chosen
        except TypeError as error:
            wrong = [each for each in names if f"'{each[0]}'" in str(error)]
            if not wrong or len(wrong[0]) == 1:
                raise
            del wrong[0][0]


def image_with_face() -> NDArray[np.uint8]:
    """A photograph (256, 256) in grey, with one face."""
    import numpy as np
    from skimage import data

    photograph: NDArray[np.uint8] = data.astronaut()  # type: ignore[no-untyped-call]
    return np.asarray(photograph[:256, 128:384].mean(axis=2), dtype=np.uint8)


def drawn_objects(folder: Path) -> Path:
    """Draw a van into each of 20 images of noise; return the annotations, as a CSV file."""
    import numpy as np
    from PIL import Image, ImageDraw

    rng = np.random.default_rng(0)
    rows: list[tuple[object, ...]] = [("path", "x", "y", "w", "h")]
    for i in range(20):
        noise = Image.fromarray(rng.integers(0, 256, (20, 30), dtype=np.uint8)).resize((180, 120))
        width = int(rng.integers(40, 80))
        height = width * 4 // 9
        x, y = int(rng.integers(0, 180 - width)), int(rng.integers(0, 120 - height))
        pen, wheel = ImageDraw.Draw(noise), height // 3
        pen.rectangle((x, y, x + width - 1, y + height - wheel // 2), fill=230)
        pen.rectangle((x + width * 2 // 3, y + wheel // 2, x + width - 3, y + height // 2), fill=60)
        for left in (x + wheel // 2, x + width - 2 * wheel):
            pen.ellipse((left, y + height - wheel - 1, left + wheel, y + height - 1), fill=20)
        noise.save(folder / f"{i}.png")
        rows.append((f"{i}.png", x, y, width, height))
    path = folder / "vans.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


@dataclass(eq=False)
class Recorder:
    """A profile function that notes which code of a directory runs while it is on."""

    directory: Path
    is_on: bool = False
    codes: set[CodeType] = field(default_factory=set)

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note the code of a call."""
        if event == "call" and self.is_on:
            self.codes.add(frame.f_code)

    def functions(self) -> list[str]:
        """The functions that ran, as `module/path.py:qualified.name`."""
        found = set()
        for code in self.codes:
            path, name = Path(code.co_filename), function_of(code.co_qualname)
            if name is not None and path.is_relative_to(self.directory):
                found.add(f"{path.relative_to(self.directory).as_posix()}:{name}")
        return sorted(found)


def function_of(qualified: str) -> str | None:
    """The function to which code belongs: comprehensions and lambdas are parts of theirs; None for module bodies.

    >>> function_of("Detector.detect.<locals>.<listcomp>"), function_of("<module>"), function_of("f.<locals>.g")
    ('Detector.detect', None, 'f.<locals>.g')
    """
    name = qualified.partition(".<locals>.<")[0]
    return None if re.search("<(?!locals>)", name) else name


def record(scenario: Callable[[Path], Action], directory: Path) -> list[str]:
    """Functions of a directory that run in a scenario, when everything it needs has been imported and compiled."""
    recorder = Recorder(directory)
    threading.setprofile(recorder)  # first: threads that the warm-up starts may live on
    with tempfile.TemporaryDirectory() as folder:
        scenario(Path(folder))()
        action = scenario(Path(folder))
        recorder.is_on = True
        sys.setprofile(recorder)
        try:
            action()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            recorder.is_on = False
    return recorder.functions()


# --- Report -----------------------------------------------------------------------------------------------------------

FIGURES: dict[str, Callable[[Checkout], Figure]] = {
    "modules": modules,
    "one_importer": one_importer,
    "loaded_for_detection": loaded_for_detection,
    "touched": touched,
    "public_names": public_names,
    "documented_deep_names": documented_deep_names,
}


def reports(checkouts: Sequence[Checkout], *, with_time: bool, with_names: bool) -> list[Figure]:
    """All figures of each checkout."""
    found = [{name: measured(figure, checkout) for name, figure in FIGURES.items()} for checkout in checkouts]
    if with_time:
        try:
            times = import_seconds(*checkouts)
        except MeasurementError as error:
            times = [{"error": str(error)} for _ in checkouts]
        for figures, seconds in zip(found, times, strict=True):
            figures["import_seconds"] = seconds
    return found if with_names else [without_names(figures) for figures in found]


def measured(figure: Callable[[Checkout], Figure], checkout: Checkout) -> Figure:
    """A figure, or why there is none."""
    try:
        return figure(checkout)
    except MeasurementError as error:
        return {"error": str(error)}


def without_names(figures: Figure) -> Figure:
    """The figures without lists of names."""
    return {
        key: without_names(value) if isinstance(value, dict) else value
        for key, value in figures.items()
        if key != "names"
    }


def flat(figures: Figure, above: str = "") -> dict[str, Any]:
    """Figures by dotted name: numbers, errors, and lists as text."""
    found: dict[str, Any] = {}
    for key, value in figures.items():
        if isinstance(value, dict):
            found |= flat(value, f"{above}{key}.")
        else:
            found[above + key] = ", ".join(value) or "none" if isinstance(value, list) else value
    return found


def table(before: Figure, after: Figure) -> str:
    """Both sides as Markdown, without the modules of each package.

    >>> print(table({"modules": {"lines": 200}}, {"modules": {"lines": 150}}))
    | figure | before | after | change |
    |---|---:|---:|---:|
    | modules.lines | 200 | 150 | -25 % |
    """
    left, right = flat(without_names(before)), flat(without_names(after))
    lines = ["| figure | before | after | change |", "|---|---:|---:|---:|"]
    for key in dict.fromkeys([*left, *right]):
        if not key.startswith("modules.packages."):
            old, new = left.get(key, ""), right.get(key, "")
            lines.append(f"| {key} | {old} | {new} | {change(old, new)} |")
    return "\n".join(lines)


def change(old: object, new: object) -> str:
    """Relative change in per cent, where there is one."""
    if not isinstance(old, int | float) or not isinstance(new, int | float) or not old:
        return ""
    return f"{100 * (new - old) / old:+.0f} %"


def has_error(figures: Figure) -> bool:
    """Tell whether a figure is missing."""
    return any(key.rpartition(".")[2] == "error" for key in flat(figures))


def main() -> int:
    """Measure one checkout, or two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help="checkout to measure")
    parser.add_argument("--compare", type=Path, help="earlier checkout, or the JSON of an earlier run")
    parser.add_argument("--list", action="store_true", help="list the names behind the numbers")
    parser.add_argument("--time", action="store_true", help="measure processor time as well")
    parser.add_argument("--worker", choices=SCENARIOS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    checkout = Checkout(options.root.resolve())
    if options.worker:
        print(json.dumps(record(SCENARIOS[options.worker], checkout.source / PACKAGE)))
        return 0
    is_stored = options.compare is not None and options.compare.is_file()
    others = [] if options.compare is None or is_stored else [Checkout(options.compare.resolve())]
    found, *before = reports([checkout, *others], with_time=options.time, with_names=options.list)
    if is_stored:
        before = [json.loads(options.compare.read_text(encoding="utf-8"))]
    if before:
        print(table(before[0], found), file=sys.stderr)
        found = {"before": before[0], "after": found}
    print(json.dumps(found, indent=1))
    return int(has_error(found))


if __name__ == "__main__":
    sys.exit(main())
