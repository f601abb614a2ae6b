"""A plugin that reaches for everything that Python has. Its status says what it found: nothing of the machine, and the
same on each run. With `spec.behaviour: steady` it does what the guest `steady` does, for comparison.
"""

import asyncio
import datetime
import os
import random
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid

import pilothouse
from pilothouse import CONFIG_MAP

PROBES = ("test.pilothouse.dev", "v1", "probes")
CHILDREN = 5

pilothouse.plugin("probe-python", version="0.1.0")
pilothouse.controller(*PROBES, kind="Probe", children=[CONFIG_MAP])


def attempt(what):
    """What comes of it, as text."""
    try:
        return repr(what())
    except Exception as error:
        return type(error).__name__


def recurse(depth):
    return depth if depth == 0 else recurse(depth - 1)


@pilothouse.reconcile(*PROBES)
def look(spec, name, now, logger, **_):
    behaviour = spec.get("behaviour", "look")
    if behaviour == "steady":
        for position in range(CHILDREN):
            data = {"text": spec["text"], "position": str(position)}
            pilothouse.apply({**CONFIG_MAP.object(f"{name}-{position}"), "data": data})
        return {"done": True}
    if behaviour == "loop":
        while True:
            pass
    if behaviour == "grow":
        return {"bytes": len(bytearray(1 << 30))}
    if behaviour == "raise":
        raise KeyError("words of a mistake")
    if behaviour == "remember":
        look.calls = getattr(look, "calls", 0) + 1
        return {"calls": look.calls}
    logger.info("looking")
    print("to stdout")
    print("to stderr", file=sys.stderr)
    began, clock = time.time(), time.monotonic()
    time.sleep(3600)
    return {
        "denied": {
            "read": attempt(lambda: open("/etc/passwd").read()),
            "write": attempt(lambda: open("planted", "w")),
            "list": attempt(lambda: os.listdir("/")),
            "temporary": attempt(tempfile.mkdtemp),
            "socket": attempt(lambda: socket.create_connection((b"127.0.0.1", 80))),
            "loop": attempt(asyncio.new_event_loop),
            "process": attempt(lambda: subprocess.run(["ls"])),
            "thread": attempt(lambda: threading.Thread(target=print).start()),
            "recursion": attempt(lambda: recurse(10_000)),
        },
        "variables": len(os.environ),
        "arguments": len(sys.argv),
        "stdin": attempt(sys.stdin.read),
        "unixSeconds": began,
        "now": now == datetime.datetime.fromtimestamp(began, datetime.timezone.utc),
        "sleptSeconds": [time.time() - began, time.monotonic() - clock],
        "random": [random.random(), secrets.token_hex(8), str(uuid.uuid4()), os.urandom(4).hex()],
        "order": list({"a", "b", "c", "d", "e", "f"}),
    }
