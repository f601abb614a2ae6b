"""Kinds whose objects are checked or completed before they are stored, as the manifest says it of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Iterable, Literal, get_args

from .kinds import Resource

Operation = Literal["CREATE", "UPDATE", "DELETE"]
"""What the user is doing, as the API server writes it."""
Subresource = Literal["status", "scale"]


@dataclass(frozen=True)
class Check:
    """A handler, and which requests it is asked about."""

    operations: frozenset[str]
    subresource: Subresource | None
    handler: Callable[..., Any] | None = None

    @classmethod
    def of(cls, operations: Iterable[Operation], subresource: Subresource | None) -> Check:
        """Refuses words that the API server does not have; a lone one is as good as a list of it."""
        given = frozenset([operations] if isinstance(operations, str) else operations)
        known = get_args(Operation)
        for one in given or [""]:
            if one not in known:
                raise ValueError(f"operations: {one!r} is none of {', '.join(known)}")
        if subresource is not None and subresource not in get_args(Subresource):
            raise ValueError(f"subresource: {subresource!r} is none of {', '.join(get_args(Subresource))}")
        return cls(given, subresource)

    def by(self, handler: Callable[..., Any]) -> Check:
        """The same for a handler."""
        return replace(self, handler=handler)


@dataclass
class Guard:
    """One kind, its handlers, and fields of the manifest that differ from their defaults."""

    resource: Resource
    schema: dict[str, Any]
    options: dict[str, Any] | None = None
    checks: list[Check] = field(default_factory=list)
    mutations: list[Check] = field(default_factory=list)

    @property
    def subresources(self) -> list[str]:
        """Those that handlers are asked about, in the order of the manifest's schema."""
        asked = {one.subresource for one in self.checks}
        return [one for one in get_args(Subresource) if one in asked]

    def to_json(self) -> dict[str, Any]:
        asked = [*self.checks, *self.mutations]
        if not asked:
            raise ValueError(
                f"{self.resource.kind} is guarded and has no handler: `@pilothouse.on.validate(...)` makes a function one"
            )
        # All that any handler is asked about; which one, is found out in the call.
        operations = [one.lower() for one in get_args(Operation) if any(one in check.operations for check in asked)]
        guard: dict[str, Any] = {"resource": self.resource.to_json()}
        if operations != ["create", "update"]:
            guard["operations"] = operations
        if self.subresources:
            guard["subresources"] = self.subresources
        if not self.checks:
            guard["validates"] = False
        if self.mutations:
            guard["defaults"] = True
        return {**guard, **(self.options or {})}


def asked_about(checks: list[Check], operation: str, subresource: str | None) -> list[Callable[..., Any]]:
    """Handlers of a request, in the order of the file, each once however many decorators name it."""
    found = (one.handler for one in checks if operation in one.operations and subresource == one.subresource)
    return list(dict.fromkeys(handler for handler in found if handler is not None))
