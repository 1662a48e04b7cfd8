"""Where the work of a training runs: in threads of this process, or on a Dask cluster. The results are the same bytes.

Tasks are pure functions of their arguments, and their results are used in the order of the tasks. So a result depends
neither on the number of workers, nor on which of them died and had its tasks repeated.
"""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from whet.errors import ClusterError, MissingExtraError, UnreadableImageError
from whet.parallel.threads import available_threads, map_in_order

if TYPE_CHECKING:
    from distributed import Client, Future, KilledWorker

R = TypeVar("R")

# A value that stays with the workers: the value itself with threads, a future on a cluster. Tasks receive the value.
Held = Any
Row = tuple[Any, ...]

# Seconds until a scheduler has answered: Dask waits for its first message without end.
HANDSHAKE = 20
# Seconds to wait for the first worker of a cluster, or for new ones when all are gone, and between two looks.
FIRST_WORKER = 60
LOOKS_AFTER = 5
# Dask samples the stacks of a worker 100 times a second, and every event loop ticks 50 times a second. Where workers
# use all cores, this takes about 5 % of the time in which they train weak learners.
QUIET = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "500ms"}


class Threads:
    """Runs tasks, `slots` of them at once, in threads of this process; None: one for each processor.

    >>> workers = Threads(2)
    >>> halves = workers.hold(divmod, [7, 9], [2, 2])
    >>> list(workers.map(sum, halves))
    [4, 5]
    """

    in_process = True  # tasks may call back

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads  # of this process, for work that is not shared out

    @property
    def slots(self) -> int:
        """Number of tasks that run at once."""
        return self.threads or available_threads()

    def threads_of_task(self, n_tasks: int) -> int:
        """Threads that each of some tasks may use: more than one where there are few tasks."""
        return max(1, self.slots // max(n_tasks, 1))

    def map(
        self,
        work: Callable[..., R],
        *columns: Iterable[Any],
        lost: Callable[..., R] | None = None,  # noqa: ARG002 - threads do not die alone
        in_turn: bool = False,
    ) -> Iterator[R]:
        """Results of `work` on each row of the columns, in order. Rows may contain held values and paths.

        On a cluster, `lost` gives the result of a row with which several workers died one after the other; without it,
        such a row is a `ClusterError`. With threads, `in_turn` is for tasks that use `threads_of_task(1)` of them: one
        follows the other.
        """
        return map_in_order(lambda row: work(*row), zip(*columns, strict=False), 1 if in_turn else self.threads)

    def hold(self, work: Callable[..., Any], *columns: Iterable[Any], apart: bool = False) -> list[Held]:  # noqa: ARG002
        """The same, but the results stay with the workers; if they are to be `apart`, each worker has its share."""
        return list(self.map(work, *columns))

    def share(self, value: Any) -> Held:  # noqa: ANN401 - any value that a task takes
        """A value that many tasks take, held by the workers."""
        return value


Workers = Threads  # or those of a `Cluster`
ALL_THREADS = Threads()


class Cluster(Threads):
    """The workers of a Dask cluster, by a `distributed.Client`.

    A task is a future whose key is a hash of its function and arguments. What a dead worker held is computed again from
    the tasks that made it; the scheduler keeps these as long as something depends on them.
    """

    in_process = False

    def __init__(self, client: Client, threads: int | None = None) -> None:
        if client.status != "running" or client.asynchronous:
            raise ClusterError(
                f"got a client that is {'asynchronous' if client.asynchronous else client.status}; expected a running "
                "one, such as distributed.Client('tcp://host:8786')"
            )
        super().__init__(threads)
        self.client = client
        self.address = client.scheduler_info()["address"]
        self._visible: dict[str, set[Path]] = {}  # directories that each worker sees, by its address
        try:
            client.wait_for_workers(1, timeout=FIRST_WORKER)
        except TimeoutError as error:
            raise ClusterError(
                f"the scheduler {self.address} has no workers after {FIRST_WORKER} s: start some with "
                f"`dask worker {self.address}`, in an environment with the same version of whet"
            ) from error
        own = version("whet")
        # Workers with another version, or none, could not even unpickle tasks.
        for address, theirs in client.run(version, "whet", on_error="return").items():
            if theirs != own:
                has = f"has whet {theirs}" if isinstance(theirs, str) else "does not have whet"
                raise ClusterError(
                    f"the worker {address} {has}; expected version {own}, as here: install it where `dask worker` runs"
                )

    def _check_visible(self, rows: list[Row]) -> None:
        """Raise `ClusterError` if a worker does not see the local files in rows of tasks.

        It would report its share of the images as missing, and the others would make a worse model. One file of each
        directory is looked for. Workers that come later are checked with the next tasks.
        """
        items: list[object] = []
        _mapped(items.append, rows)
        paths = [item.absolute() for item in items if isinstance(item, Path)]
        directories = {path.parent for path in paths}
        if not directories:
            return
        new = [address for address in self._nthreads() if not directories <= self._visible.get(address, set())]
        if not new:
            return
        files: dict[Path, Path] = {}
        for path in paths:
            # Directories of images of which a file is looked for on each worker.
            if path.parent not in files and len(files) < 50 and _can_read(path):
                files[path.parent] = path
        try:
            # A worker that died meanwhile is left out: its tasks go to others.
            unreadable = self.client.run(_unreadable, list(files.values()), workers=new, on_error="ignore")
        except OSError as error:
            raise self._lost_connection() from error
        for address, hidden in unreadable.items():
            if hidden:
                raise ClusterError(
                    f"the worker {address} cannot see {hidden[0].parent}, for example {hidden[0].name}: use a file "
                    "system that all machines share, or URLs of the images (--images URL)"
                )
            self._visible.setdefault(address, set()).update(directories)

    def __repr__(self) -> str:
        n, slots = len(self._nthreads()), self.slots
        counts = f"{n} worker{'s' * (n != 1)}, {slots} thread{'s' * (slots != 1)}"
        has_page = "dashboard" in self.client.scheduler_info()["services"]
        return counts + (f", dashboard {self.client.dashboard_link}" if has_page else "")

    @property
    def slots(self) -> int:
        """Number of tasks that run at once."""
        return max(sum(self._nthreads().values()), 1)

    def _nthreads(self) -> dict[str, int]:
        """Threads of each worker, by its address."""
        try:
            return dict(self.client.nthreads())
        except OSError as error:
            raise self._lost_connection() from error

    def threads_of_task(self, n_tasks: int) -> int:  # noqa: ARG002 - a slot is a thread
        """One: other tasks have the other threads of a worker."""
        return 1

    def map(
        self,
        work: Callable[..., R],
        *columns: Iterable[Any],
        lost: Callable[..., R] | None = None,
        in_turn: bool = False,  # noqa: ARG002 - a task has one thread
    ) -> Iterator[R]:
        """Results of `work` on each row of the columns, in order; some rows are submitted ahead.

        A task costs milliseconds of messages: where there are many rows, it has several of them.
        """
        # Tasks that are submitted ahead, for each that runs: workers never wait for this process.
        rows, ahead = list(zip(*columns, strict=False)), 3 * self.slots
        self._check_visible(rows)
        # Rows of a task: a task costs about 15 ms of all processes together, and an image takes 30.
        size = min(max(len(rows) // ahead, 1), 8)
        waiting: deque[tuple[list[Row], Future[Any]]] = deque()
        try:
            for start in range(0, len(rows), size):
                some = rows[start : start + size]
                waiting.append((some, self._submit(_each, (work, some))))
                if len(waiting) > ahead:
                    yield from self._results(work, *waiting.popleft(), lost)
            while waiting:
                yield from self._results(work, *waiting.popleft(), lost)
        finally:  # an error, Ctrl-C, or who asked has enough
            if waiting:
                self.client.cancel([future for _, future in waiting])

    def hold(self, work: Callable[..., Any], *columns: Iterable[Any], apart: bool = False) -> list[Held]:
        """Futures of the results.

        Tasks that take the same value run where it is, and others wait a second until they are moved: if results are to
        be `apart`, tasks are dealt out. A task whose worker is gone runs anywhere.
        """
        rows = list(zip(*columns, strict=False))
        self._check_visible(rows)
        threads = [address for address, n in sorted(self._nthreads().items()) for _ in range(n)] if apart else []
        places = cycle([{"workers": [address], "allow_other_workers": True} for address in threads] or [{}])
        return [self._submit(_run, (work, *row), **place) for row, place in zip(rows, places, strict=False)]

    def share(self, value: Any) -> Held:  # noqa: ANN401
        """A future of the value; the scheduler keeps a copy, from which it is restored when a worker dies."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            return self._submit(_same, (value,))

    def _submit(self, task: Callable[..., Any], arguments: Row, **place: Any) -> Future[Any]:  # noqa: ANN401
        arguments = absolute(arguments)
        return self.client.submit(task, *arguments, key=_key(task, arguments), **place)

    def _results(
        self, work: Callable[..., R], rows: list[Row], future: Future[Any], lost: Callable[..., R] | None
    ) -> Iterator[R]:
        """Results of some rows. If workers died, of one of them or of a task beside them, each is tried alone."""
        from distributed import KilledWorker

        try:
            results = self._value(future)
        except KilledWorker as error:
            if error.task != future.key:  # of a value that it takes: no row is to blame
                raise _died(error) from error
            results = (self._alone(work, row, lost) for row in rows)
        for result in results:
            if isinstance(result, _Failure):
                raise result.error
            yield result

    def _alone(self, work: Callable[..., R], row: Row, lost: Callable[..., R] | None) -> Any:  # noqa: ANN401
        from distributed import KilledWorker

        future = self._submit(_run, (work, *row))
        try:
            return self._value(future, final=lost is None)
        except KilledWorker as error:
            if lost is None or error.task != future.key:
                raise _died(error) from error
            return lost(*row)

    def _value(self, future: Future[Any], *, final: bool = False) -> Any:  # noqa: ANN401 - the result of any task
        """The result of a task. If it is `final`, a task of which workers died is a `ClusterError`."""
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        seen = time.monotonic()
        while True:
            try:
                return future.result(timeout=LOOKS_AFTER)
            except KilledWorker as error:
                if final:
                    raise _died(error) from error
                raise
            except TimeoutError:
                if self._nthreads():
                    seen = time.monotonic()
                elif time.monotonic() - seen > FIRST_WORKER:
                    raise ClusterError(
                        f"all workers of {self.address} are gone for {FIRST_WORKER} s: look at their logs, start some "
                        "and repeat the command; a training continues from its checkpoint with --resume"
                    ) from None
            except (FutureCancelledError, OSError) as error:
                raise self._lost_connection() from error

    def _lost_connection(self) -> ClusterError:
        return ClusterError(
            f"lost the connection to the scheduler {self.address}: start it again and repeat the command; a training "
            "continues from its checkpoint with --resume"
        )


def _died(error: KilledWorker) -> ClusterError:
    name = str(error.task).rpartition("-")[0]
    return ClusterError(
        f"the workers that ran {name} died, one after the other ({error.allowed_failures + 1} of them): give workers "
        "more memory (--memory-limit of `dask worker`), or look at their logs"
    )


@dataclass(frozen=True)
class _Failure:
    """An error of a task, as a value: Dask's client waits forever for an error that it cannot unpickle."""

    error: Exception


def _run(work: Callable[..., Any], *row: object) -> Any:  # noqa: ANN401 - the result of any task
    """The result of a task, or its failure, or that of a task whose result it takes."""
    _reuse_memory()
    for argument in row:
        if isinstance(argument, _Failure):
            return argument
    try:
        return work(*row)
    except Exception as error:
        return _Failure(_portable(error))


def _each(work: Callable[..., Any], rows: list[Row]) -> list[Any]:
    """Results or failures of rows; those after a failure are not needed."""
    results = []
    for row in rows:
        results.append(_run(work, *row))
        if isinstance(results[-1], _Failure):
            break
    return results


def _same(value: R) -> R:
    return value


@cache
def _reuse_memory() -> None:
    """Let the allocator of a worker reuse arrays of megabytes.

    Dask starts workers with MALLOC_TRIM_THRESHOLD_=65536, with which every such array consists of new pages: training
    of weak learners then takes 2.4 times as long. At most 256 MB stay with the process.
    """
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another allocator
        return
    trim_threshold, mmap_threshold = -1, -3  # from where memory is returned to the system: at the end, or at once
    mallopt(trim_threshold, 1 << 28)
    mallopt(mmap_threshold, 1 << 25)


def _portable(error: Exception) -> Exception:
    """The error itself if it can be sent to another process, else one with its text."""
    import pickle

    try:
        same: Exception = pickle.loads(pickle.dumps(error))
    except Exception:
        return ClusterError(f"{type(error).__name__}: {error}; this is an error of whet on a worker, please report it")
    return same


def absolute(value: Any) -> Any:  # noqa: ANN401 - any argument of a task
    """The same value; local paths in it do not depend on the working directory, which workers do not share.

    >>> absolute((1, [Path("/a"), None]))
    (1, [PosixPath('/a'), None])
    """
    return _mapped(lambda item: item.absolute() if isinstance(item, Path) else item, value)


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:  # noqa: ANN401
    """A value with all that is in its tuples and lists changed."""
    return type(value)(_mapped(change, item) for item in value) if type(value) in (tuple, list) else change(value)


def _can_read(path: Path) -> bool:
    return os.path.isfile(path) and os.access(path, os.R_OK)  # Path.is_file raises without permission


def _unreadable(paths: list[Path]) -> list[Path]:
    """Those of the paths that this process, a worker, cannot read."""
    return [path for path in paths if not _can_read(path)]


def _key(task: Callable[..., Any], arguments: Row) -> str:
    """A name for a task by its contents; futures in them count by their own names."""
    import cloudpickle
    from distributed import Future

    named = _mapped(lambda item: item.key if isinstance(item, Future) else item, arguments)
    digest = hashlib.sha256(cloudpickle.dumps((task, named))).hexdigest()
    work = arguments[0] if callable(arguments[0]) else task
    return f"{str(getattr(work, '__name__', type(work).__name__)).strip('_')}-{digest[:40]}"


def lost_image(image: Any, *_: object) -> UnreadableImageError:  # noqa: ANN401 - a path, or what has one
    """The error of an image with which several workers of a cluster died one after the other."""
    path = getattr(image, "path", image)
    return UnreadableImageError(
        f"{path}: the workers that read it died, one after the other; give them more memory, or remove the image"
    )


@contextmanager
def connect(
    scheduler: str | None = None, n_workers: int | None = None, threads: int | None = None
) -> Iterator[Workers]:
    """Workers by options of the command line: a running scheduler, a local cluster of processes, or threads."""
    if scheduler is None and n_workers is None:
        yield Threads(threads)
        return
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise MissingExtraError("distributed", "dask") from error
    for name in ("distributed", "tornado", "bokeh", "asyncio"):  # what concerns the user is an error of whet
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if scheduler is None:
        silent = {"dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
        stack = ExitStack()
        try:
            with _ctrl_c_waits(), dask.config.set(QUIET):
                cluster = LocalCluster(n_workers=n_workers, threads_per_worker=1, **silent)
                stack.enter_context(cluster)
                client = stack.enter_context(Client(cluster))
            yield Cluster(client, threads)
        finally:
            with _ctrl_c_waits():  # one that interrupts the end makes Dask wait 10 s for its processes
                stack.close()
        return
    with _client_of(scheduler) as client:
        yield Cluster(client, threads)


def _client_of(scheduler: str) -> Client:
    """A client of a running scheduler; raises `ClusterError` if it does not answer as a scheduler does."""
    from distributed import Client

    clients: list[Client] = []
    errors: list[Exception] = []

    def start() -> None:
        try:
            clients.append(Client(scheduler, timeout=10))
        except Exception as error:  # the bytes of another server can be anything
            errors.append(error)

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    thread.join(HANDSHAKE)
    if clients:
        return clients[0]
    if not errors or isinstance(errors[0], MemoryError):  # an answer that is taken for the size of a message
        raise ClusterError(
            f"something answers at {scheduler}, but it is no Dask scheduler: is it the port of its dashboard? Give "
            "the address that `dask scheduler` prints, such as tcp://host:8786"
        )
    what = "start one with `dask scheduler`, and give the address that it prints, such as tcp://host:8786"
    if isinstance(errors[0], TypeError) and scheduler.startswith("tls://"):
        what = (
            "give the certificates in Dask's configuration, distributed.comm.tls: ca-file, client.cert and "
            "client.key, also by environment variables such as DASK_DISTRIBUTED__COMM__TLS__CA_FILE"
        )
    raise ClusterError(f"cannot connect to the scheduler {scheduler}: {errors[0]}; {what}") from errors[0]


@contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """Deliver Ctrl-C afterwards, and never to the processes that start meanwhile: this one ends them.

    A terminal interrupts all its processes, and each would print a traceback. Processes and threads inherit the signals
    that are blocked. Threads that are older than this one may still receive the signal, so that the handler waits too.
    """
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(before) or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # its start would unblock the signal
    received: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGINT, before)
    if received:
        signal.raise_signal(signal.SIGINT)


def workers_from(client: Client | None, threads: int | None = None) -> Workers:
    """The workers of a Dask client; without one, threads of this process."""
    return Threads(threads) if client is None else Cluster(client, threads)


class CacheBudget:
    """Bytes that all caches of this process may keep, such as pyramids of images; a cache that is dropped frees its."""

    def __init__(self) -> None:
        self._lock, self._used = threading.RLock(), 0  # a collection of garbage may release while it is held

    def reserve(self, owner: object, size: int, limit: int) -> bool:
        """Whether `owner` may keep `size` more bytes as long as it lives, with at most `limit` in all."""
        limit = _memory_of_worker(limit)
        with self._lock:
            if self._used + size > limit:
                return False
            self._used += size
        weakref.finalize(owner, self._release, size)
        return True

    def _release(self, size: int) -> None:
        with self._lock:
            self._used -= size


CACHE = CacheBudget()


def _memory_of_worker(limit: int) -> int:
    """The limit, but on a worker of a cluster at most a quarter of its memory."""
    if "distributed.worker" in sys.modules:
        from distributed import get_worker

        try:
            memory = get_worker().memory_manager.memory_limit
        except ValueError:  # not in a task
            return limit
        return limit if memory is None else min(limit, int(0.25 * memory))
    return limit
