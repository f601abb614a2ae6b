"""Requests that the API server asks about: from what the host sends, over the handlers, to a verdict or a whole object.

How a handler ends says what becomes of a request:

- it returns: nothing is wrong as far as it knows
- `AdmissionError`: the request is refused, with the field. So does `PermanentError`, whose text begins with the field
- any other exception is a mistake in the plugin: its traceback goes to the log and the call traps, so that the guard's
  `failurePolicy` decides. A verdict has no words for it.

Only components of plugins that guard have this module, as the contract's types for it come with the export.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import datetime
from typing import Any

from pilothouse_wit.exports import admission as wit

from . import registry, schema
from .actions import text
from .errors import AdmissionError, PermanentError
from .guards import Guard, asked_about
from .objects import parts
from .registry import accepted

logger = logging.getLogger("pilothouse.operator")

_KEPT = ("apiVersion", "kind", "metadata", "status")
"""What the contract lets no plugin change."""

_FIELD = re.compile(r"((?:spec|metadata|data)\b[^\s:]*): (.+)", re.DOTALL)
"""How a text begins that names a field."""


class Patch(dict[str, Any]):
    """What handlers of `on.mutate` change, as a JSON merge patch: a value of None removes the field."""

    @property
    def spec(self) -> dict[str, Any]:
        """Changes of the spec."""
        return self.setdefault("spec", {})

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"patch.{name}: of an object that is guarded the content alone may be changed: `patch.spec`, or "
            '`patch["data"]` of a kind without a spec'
        )


class Admission:
    """`pilothouse:operator/admission`."""

    def validate(self, request: wit.AdmissionRequest) -> wit.Verdict:
        asked = _Asked(request)
        warnings: list[str] = []
        causes = _schema_problem(asked) or _causes(asked, warnings)
        return wit.Verdict(allowed=not causes, causes=causes, warnings=[str(one) for one in warnings])

    def default_fields(self, request: wit.AdmissionRequest) -> str:
        asked = _Asked(request)
        if request.new is None:
            raise ValueError("nothing can be filled in when an object is deleted")
        handlers = asked_about(asked.guard.mutations, asked.operation, asked.subresource) if asked.guard else []
        patch = Patch()
        # Nobody reads the warnings of a mutation.
        arguments = {**asked.arguments([]), "patch": patch}
        try:
            for handler in handlers:
                handler(**accepted(handler, arguments))
            # The argument may be an empty stand-in for a spec that is not there.
            if asked.new != json.loads(request.new) or arguments["spec"] != (asked.new.get("spec") or {}):
                raise TypeError("a handler of `on.mutate` has changed `body` or a part of it: `patch` is what it changes")
            return _merged(request.new, asked.new, patch)
        except Exception as error:
            # Mutations come before the API server's own checks, which say better what is wrong.
            if asked.problem is not None:
                return request.new
            logger.exception("a handler failed")
            if isinstance(error, PermanentError):
                raise TypeError(f"a mutation cannot refuse, `on.validate` can: {error}") from error
            raise


class _Asked:
    """One request."""

    def __init__(self, request: wit.AdmissionRequest) -> None:
        self.request = request
        self.new = None if request.new is None else json.loads(request.new)
        self.old = None if request.old is None else json.loads(request.old)
        self.body = self.new if self.new is not None else self.old
        self.operation = request.operation.name
        self.subresource = request.subresource or None
        self.guard = self._find()
        # Stored before the schema was as it is. Handlers need not be ready for it.
        if self.new is not None and self.old is not None and self._problem(self.old) is not None:
            self.old = None
        # What the schema has against the object; said before a handler changes anything.
        self.problem = None if self.subresource is not None else self._problem(self.body)

    def _find(self) -> Guard | None:
        """Whose request it is: that of the object's kind. A scale names no kind, and one guard alone asks for scales."""
        guards = registry.current().guards.values()
        of_kind = (one for one in guards if one.resource.is_kind_of(self.body))
        scaled = (one for one in guards if self.subresource == "scale" and "scale" in one.subresources)
        return next(of_kind, None) or next(scaled, None)

    def _problem(self, body: dict[str, Any]) -> str | None:
        if self.guard is None or not self.guard.resource.is_kind_of(body):
            return None
        return schema.problem(body, self.guard.schema)

    def arguments(self, warnings: list[str]) -> dict[str, Any]:
        request = self.request
        return {
            **parts(self.body),
            "old": self.old,
            "new": self.new,
            "operation": self.operation,
            "subresource": self.subresource,
            "dryrun": request.dry_run,
            "userinfo": {"username": request.user, "groups": request.groups},
            "warnings": warnings,
            "config": json.loads(request.config),
            "now": datetime.fromisoformat(request.now),
            "logger": logger,
        }


def _schema_problem(asked: _Asked) -> list[wit.Cause]:
    """Where the definition in the cluster is another one than the plugin's, handlers need not be ready for it."""
    if asked.problem is None or asked.new is None:
        return []
    field, message = asked.problem.split(": ", 1)
    return [wit.Cause(field, "FieldValueInvalid", message)]


def _causes(asked: _Asked, warnings: list[str]) -> list[wit.Cause]:
    """What the handlers have against a request."""
    if asked.guard is None:
        return []
    arguments = asked.arguments(warnings)
    causes = []
    for handler in asked_about(asked.guard.checks, asked.operation, asked.subresource):
        try:
            handler(**accepted(handler, arguments))
        except Exception as error:
            refusals = _refusals(error)
            if refusals is not None:
                causes += map(_cause, refusals)
                continue
            # What was stored before the schema was as it is must be able to go: no handler is ready for it.
            if asked.new is None and asked.problem is not None:
                continue
            logger.exception("a handler failed")
            raise
    return causes


def _refusals(error: BaseException) -> list[PermanentError] | None:
    """The refusals that an exception is made of; None if it is, or has, a mistake."""
    if isinstance(error, PermanentError):
        return [error]
    if not isinstance(error, ExceptionGroup):
        return None
    found = [_refusals(one) for one in error.exceptions]
    return None if None in found else [leaf for part in found for leaf in part or ()]


def _cause(error: PermanentError) -> wit.Cause:
    if isinstance(error, AdmissionError):
        field, reason, message = error.field, error.reason, error.message
    else:
        named = _FIELD.fullmatch(str(error))
        field, message = named.groups() if named else ("", str(error))
        reason = "FieldValueInvalid"
    # The host takes no cause without words.
    return wit.Cause(field, reason, message or "is not allowed")


def _merged(unchanged: str, body: dict[str, Any], patch: Patch) -> str:
    """The object with what was patched. What the host would refuse is told here, by the name of the field."""
    wrong = next((name for name in _KEPT if name in patch), None)
    if wrong is not None:
        raise TypeError(f"a handler of `on.mutate` has patched `{wrong}`: the content alone may be changed, mostly `patch.spec`")
    if not patch.get("spec", True) and "spec" not in body:
        # Looked at and left alone.
        del patch["spec"]
    return text(_merge(body, patch)) if patch else unchanged


def _merge(value: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for name, one in patch.items():
        if one is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), one)
    return merged
