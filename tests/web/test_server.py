"""The server as a process: killed in the middle, slow and broken clients, several clients, events."""

import asyncio
import http.client
import select
import signal
import socket
import sqlite3
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
from tests.detectors import bull_file
from tests.web.studios import PAGE, TIMEOUT, news_of, opened, running, scenes

import whet
from whet.errors import CannotServeError
from whet.web import page_state
from whet.web.api import make_app
from whet.web.security import Access, Limits
from whet.web.server import StudioServer
from whet.web.studio import Studio
from whet.web.workspace import Workspace

pytestmark = pytest.mark.slow  # each test starts a server


@pytest.fixture
def place(tmp_path):
    scenes(tmp_path / "scenes")
    return bull_file(tmp_path), tmp_path / "scenes", tmp_path / "p.studio"


def images_of(client):
    for _ in range(TIMEOUT * 10):
        found = client.get("/api/images").json()["images"]
        if len(found) == 4:
            return [image["id"] for image in found]
        time.sleep(0.1)
    raise AssertionError("the images do not come")


def client_of(port):
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT, headers=PAGE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_studio_that_is_asked_to_stop_leaves_one_file_with_everything(place, number):
    model, folder, project = place
    with running(model, folder, "--project", project) as (run, port), client_of(port) as client:
        images_of(client)
        run.send_signal(number)
        run.wait(TIMEOUT)
    assert not project.with_name(project.name + "-wal").exists()
    with Workspace.open(project) as workspace:
        assert workspace.has_model


def test_killed_in_mid_correction_nothing_is_lost_and_nothing_is_there_twice(place):
    model, folder, project = place
    acknowledged = {}
    with running(model, folder, "--project", project) as (run, port), client_of(port) as client:
        keys = images_of(client)
        boxes = {key: [d["box"] for d in client.get(f"/api/images/{key}").json()["detections"]] for key in keys}
        killer = threading.Timer(1.0, run.kill)
        killer.start()
        try:
            for number in range(10_000):
                key = keys[number % 4]
                if not boxes[key]:
                    break
                body = {"boxes": [boxes[key].pop()], "is_object": False, "request_id": f"r{number}"}
                acknowledged[f"r{number}"] = None
                answer = client.post(f"/api/images/{key}/labels", json=body)
                if answer.status_code == 200:
                    acknowledged[f"r{number}"] = answer.json()["added"][0]
        except httpx.HTTPError:
            pass
        run.wait(TIMEOUT)
    assert run.returncode == -signal.SIGKILL
    learned = {added for added in acknowledged.values() if added}
    with running(model, folder, "--project", project) as (_, port), client_of(port) as client:
        state = client.get("/api/state").json()
        records = {row["record"] for row in client.get("/api/export?format=corrections").json()["annotations"]}
        assert learned <= records
        assert len(records) <= len(acknowledged)
        assert state["n_corrections"] == len(records)
        data = client.get("/api/model.whet").content
        assert sum(added is None for added in acknowledged.values()) <= 1  # the one that was not answered
    with Workspace.open(project) as workspace:
        replay = whet.load(model)
        replay.add(workspace.records())
        assert replay.to_bytes() == data
    with sqlite3.connect(project) as db:
        query = "SELECT count(*), count(DISTINCT item) FROM changes WHERE item IN (SELECT id FROM labels)"
        n_nodes, n_ids = db.execute(query).fetchone()
        others = db.execute("SELECT node, item FROM changes WHERE item NOT IN (SELECT id FROM labels)").fetchall()
    db.close()
    assert n_nodes == n_ids == len(records)
    assert [(node, item.partition("/")[0]) for node, item in others] == [(0, "model")]  # once, in the first state


def test_two_clients_at_once_hear_of_each_other(place):
    model, folder, project = place
    with running(model, folder, "--project", project) as (_, port), client_of(port) as one, client_of(port) as other:
        keys = images_of(one)
        received, ready = [], threading.Event()

        def listen():
            with other.stream("GET", "/api/events") as stream:
                for event in news_of(stream.iter_lines()):
                    ready.set()
                    received.append(event)
                    if event.get("client") == "page" and event["type"] == "state":
                        return

        listener = threading.Thread(target=listen)
        listener.start()
        assert ready.wait(TIMEOUT)
        box = one.get(f"/api/images/{keys[0]}").json()["detections"][-1]["box"]
        answer = one.post(f"/api/images/{keys[0]}/labels", json={"boxes": [box], "is_object": False}).json()
        listener.join(TIMEOUT)
        assert received[-1]["image"] == keys[0]
        assert received[-1]["revision"] == answer["revision"]
        assert other.get(f"/api/images/{keys[0]}").json() == answer["image"]


def test_a_signal_ends_it_and_leaves_a_project_that_opens(place):
    model, folder, project = place
    with running(model, folder, "--project", project) as (run, port), client_of(port) as client:
        images_of(client)
        with client.stream("GET", "/api/events") as stream:
            next(news_of(stream.iter_lines()))
            run.send_signal(signal.SIGTERM)
            run.wait(TIMEOUT)
        assert "Traceback" not in run.stderr.read()
    Workspace.open(project).close()


@pytest.fixture
def server(tmp_path):
    """A server in this process that is soon out of patience."""
    limits = Limits(header_seconds=0.5, body_seconds=0.5, connections=8)
    with (
        opened(tmp_path, n=1) as (workspace, _),
        StudioServer(make_app(Studio(workspace), Access(limits=limits))) as server,
    ):
        yield server


def port_of(server):
    return int(server.address.rpartition(":")[2].strip("/"))


def answer_to(server, *parts, pause=0.0):
    """All that comes back for the bytes of a request."""
    with socket.create_connection(("127.0.0.1", port_of(server)), timeout=TIMEOUT) as connection:
        reply = b""
        with suppress(ConnectionResetError, BrokenPipeError):
            for part in parts:
                if not select.select([connection], [], [], 0)[0]:
                    connection.sendall(part)
                time.sleep(pause)
            for received in iter(lambda: connection.recv(4096), b""):
                reply += received
        return reply


def is_alive(server):
    connection = http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=TIMEOUT)
    connection.request("GET", "/api/state")
    return connection.getresponse().status == 200


def test_slow_bodies_get_a_408(server):
    head = b"POST /api/undo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n"
    assert answer_to(server, head, b"{").startswith(b"HTTP/1.1 408")
    assert answer_to(server, head, *[b" "] * 8, pause=0.1).startswith(b"HTTP/1.1 408")
    assert is_alive(server)


def test_slow_headers_and_silence_are_hung_up_on(server):
    assert answer_to(server) == b""
    assert b"200" not in answer_to(server, *[b"G"] * 10, pause=0.1)
    assert is_alive(server)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # a browser that tries https
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * 70_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"POST /api/undo HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/undo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"\x00\xff\n",
    ],
)
def test_nonsense_and_huge_headers_are_refused_and_the_server_goes_on(server, request_bytes):
    reply = answer_to(server, request_bytes)
    assert b" 200 OK" not in reply
    assert reply == b"" or reply.startswith(b"HTTP/1.1 4")
    assert is_alive(server)


def test_connections_without_number_are_refused_and_free_again(server):
    idle = [socket.create_connection(("127.0.0.1", port_of(server)), timeout=TIMEOUT) for _ in range(30)]
    for connection in idle:
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""
        connection.close()
    assert is_alive(server)


HEAD = b"GET /api/state HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize("sent", [b"", HEAD + b"A: ", HEAD + b"\r\n"])
def test_slow_connections_do_not_keep_others_from_being_served(server, sent):
    """More of them than the server has places: the one that has waited longest makes room."""
    slow = []
    for _ in range(20):
        slow.append(socket.create_connection(("127.0.0.1", port_of(server)), timeout=TIMEOUT))
        slow[-1].sendall(sent)
        assert is_alive(server)
    for connection in slow:
        connection.close()


@pytest.mark.slow
def test_two_hundred_slow_connections_beside_eight_working_clients(tmp_path):
    """Every request is answered; `python -m tests.web.test_server` prints how soon, over a minute."""
    check_slow_connections(tmp_path, 1, 4)


def check_slow_connections(folder, alone, beside):
    """The 95th percentile of seconds to an answer, in so many seconds alone and beside slow connections."""
    with opened(folder, n=1) as (workspace, _), StudioServer(make_app(Studio(workspace))) as server:

        def ask(seconds):
            times, end = [], time.monotonic() + seconds
            connection = http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=TIMEOUT)
            while time.monotonic() < end:
                began = time.monotonic()
                try:
                    connection.request("GET", "/api/state")
                    answer = connection.getresponse()
                except (http.client.RemoteDisconnected, ConnectionError):  # an idle connection: clients ask again
                    connection.close()
                    connection.request("GET", "/api/state")
                    answer = connection.getresponse()
                answer.read()
                assert answer.status == 200
                times.append(time.monotonic() - began)
                time.sleep(0.05)
            return times

        def measured(seconds):
            with ThreadPoolExecutor(8) as pool:
                return np.percentile([t for times in pool.map(ask, [seconds] * 8) for t in times], 95)

        ended = threading.Event()

        def attack():
            slow = []
            while not ended.is_set():
                slow = [one for one in slow if not select.select([one], [], [], 0)[0]] if len(slow) >= 200 else slow
                while len(slow) < 200:
                    slow.append(socket.create_connection(("127.0.0.1", port_of(server)), timeout=TIMEOUT))
                    slow[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nA: ")
                ended.wait(1)
            for one in slow:
                one.close()

        quiet, attacker = measured(alone), threading.Thread(target=attack)
        attacker.start()
        try:
            return quiet, measured(beside)
        finally:
            ended.set()
            attacker.join()


def test_a_port_that_is_taken_and_hosts_of_others_are_named(server):
    port = port_of(server)
    with pytest.raises(CannotServeError, match=rf"port {port} of 127.0.0.1 is in use.*--port"):
        StudioServer(_app_of(server), port=port)
    with pytest.raises(CannotServeError, match="not an address of this machine"):
        StudioServer(_app_of(server), host="203.0.113.9")


def _app_of(server):
    return server._server.config.app


def test_eight_clients_detect_and_correct_and_every_answer_is_in_the_project_once(tmp_path):
    with opened(tmp_path) as (workspace, keys), StudioServer(make_app(Studio(workspace))) as server:
        boxes = {key: [found.box for found in page_state.image(workspace, key).detections] for key in keys}
        learned, errors = [], []

        def work(number):
            with httpx.Client(
                base_url=server.address, timeout=TIMEOUT, headers={"X-Whet-Client": f"c{number}"}
            ) as client:
                key = keys[number % 4]
                for box in boxes[key][number // 4 :: 2]:
                    body = {"boxes": [box], "is_object": False, "request_id": f"{number}-{box}"[:99]}
                    answer = client.post(f"/api/images/{key}/labels", json=body)
                    if answer.status_code == 200:
                        learned.extend(answer.json()["added"])
                    else:
                        errors.append(answer.text)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT)
        assert errors == []
        assert sorted(learned) == sorted(set(learned)) == sorted(workspace.record_ids())
        assert len(workspace.history.nodes) == len(learned) + 1


def test_answers_are_sent_at_once(tmp_path):
    """asyncio switches the delay of small packets off only for sockets whose protocol is named."""
    accepted = []
    with opened(tmp_path) as (workspace, _), StudioServer(make_app(Studio(workspace))) as server:
        make = asyncio.selector_events._SelectorSocketTransport

        class Noted(make):
            def __init__(self, loop, sock, *rest, **options):
                super().__init__(loop, sock, *rest, **options)
                accepted.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.selector_events, "_SelectorSocketTransport", Noted)
            assert httpx.get(f"{server.address}api/state").is_success
    assert accepted
    assert all(accepted)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        seconds = check_slow_connections(Path(place), 20, 60)
        print(
            "95th percentile, alone and beside slow connections: {:.1f} and {:.1f} ms".format(
                *np.multiply(1000, seconds)
            )
        )
