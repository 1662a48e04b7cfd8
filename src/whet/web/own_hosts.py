"""Against DNS rebinding: a page elsewhere whose name is made to point to this machine.

A browser then takes what is served here for that page's own, and lets it read all. It sends the name that it asked
for, though, and that is none of ours. A number cannot be pointed elsewhere, so only names are looked at closely.
"""

from __future__ import annotations

import re
import socket
from ipaddress import ip_address

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # what servers listen on that are to be reached by all addresses


def is_own(header: str, hosts: frozenset[str]) -> bool:
    """Whether a request's Host header names a server that listens on these hosts; the port may be a tunnel's.

    >>> is_own("localhost:8000", frozenset({"127.0.0.1"})), is_own("evil.example:8000", frozenset({"127.0.0.1"}))
    (True, False)
    >>> is_own("192.168.1.7:8000", frozenset({"127.0.0.1"})), is_own("192.168.1.7:8000", frozenset({"0.0.0.0"}))
    (False, True)
    """
    found = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::\d{1,5})?", header.lower())
    if found is None:
        return False
    name = found[1] or found[2]
    if name in LOOPBACK or name in hosts:
        return True
    return bool(hosts & EVERYWHERE) and (_is_number(name) or name in machine_names())


def machine_names() -> frozenset[str]:
    """What this machine is called, on its own and in a home's network."""
    name = socket.gethostname().lower()
    return frozenset({name, f"{name}.local"})


def _is_number(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
