"""The component's exports. The module that `build` writes names this class; nothing else needs it."""

from __future__ import annotations

import json
import logging

from pilothouse_wit.imports import log, types

from . import passes
from . import registry


class _HostLog(logging.Handler):
    """Lines of `logging`, whoever writes them, go to the host's log."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            level = log.Level.ERROR
        elif record.levelno >= logging.WARNING:
            level = log.Level.WARN
        elif record.levelno >= logging.INFO:
            level = log.Level.INFO
        else:
            level = log.Level.DEBUG
        log.write(level, self.format(record))


# What is shown of it is for the host to decide.
logging.basicConfig(level=logging.DEBUG, handlers=[_HostLog()], format="%(message)s")


class Reconciler:
    """`pilothouse:operator/reconciler`."""

    def describe(self) -> str:
        return json.dumps(registry.manifest())

    def reconcile(self, desired: types.Desired, observed: types.Observed) -> types.Outcome:
        return passes.run(desired, observed)
