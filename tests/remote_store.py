"""Stores of images for tests: fsspec's in memory, and a real HTTP server on this machine with all that can go wrong."""

import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import fsspec


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; /denied, /gone, /broken, /slow, /half and so on answer as they say. `asked` are all requests.

    `once` has an answer for the next request of a path: the name of one of these.
    """

    asked = None
    ended = None
    once = None
    pair = None

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.asked.append(f"{self.command} {self.path}")
        match self.once.pop(self.path, None) or self.path.split("/")[1]:
            case "denied":
                self.send_error(403)
            case "gone":
                self.send_error(404)
            case "broken":
                self.send_error(500)
            case "slow":
                self.ended.wait(30)
            case "half":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(bytes(500))
            case "paired":  # images are served two at a time
                self.path = self.path.removeprefix("/paired")
                try:
                    _ = self.path.endswith(".png") and self.pair.wait(5)
                except threading.BrokenBarrierError:
                    self.send_error(404)
                else:
                    super().do_GET()
            case "endless":
                self.send_response(200)
                self.end_headers()
                while not self.ended.is_set():
                    self.wfile.write(bytes(1 << 16))
            case _:
                super().do_GET()

    def log_message(self, *_):
        pass


@contextmanager
def http_store(folder, once=None):
    """The URL of a server of a folder, and the list of the requests that it gets."""
    asked, ended = [], threading.Event()
    shared = {"asked": asked, "ended": ended, "once": {} if once is None else once, "pair": threading.Barrier(2)}
    handler = type("Handler", (Handler,), shared)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)  # looks for the end so often
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        ended.set()
        server.shutdown()
        server.server_close()


@contextmanager
def memory_store(folder):
    """The URL of a copy of a folder in fsspec's memory."""
    files = fsspec.filesystem("memory")
    files.put(f"{folder}/", "/store/", recursive=True)
    try:
        yield "memory://store"
    finally:
        files.rm("/store", recursive=True)
