"""What a handler sees of the cluster: plain dictionaries in lists that can be searched."""

from __future__ import annotations

from typing import Any, Iterable, NamedTuple

from .kinds import Resource


class Objects(list[dict[str, Any]]):
    """Objects of any kinds, in the order of the contract."""

    def of(self, kind: Resource) -> Objects:
        """Those of one kind."""
        return Objects(body for body in self if kind.is_kind_of(body))

    def named(self, kind: Resource, name: str) -> dict[str, Any] | None:
        """The object of this kind and name; of another namespace's the first. None if there is none."""
        return next((body for body in self.of(kind) if body["metadata"]["name"] == name), None)


class Answer(Objects):
    """The objects found for one rule of the manifest or one look-up.

    `complete` is false while the host cannot know all of them yet, or cut the list at the limit of the query.
    """

    def __init__(self, bodies: Iterable[dict[str, Any]] = (), complete: bool = True) -> None:
        super().__init__(bodies)
        self.complete = complete


class Rejected(NamedTuple):
    """An action of the previous pass that the API server refused. Reasons are those of the contract."""

    index: int
    reason: str
    message: str
    kind: str | None
    name: str | None


def parts(body: dict[str, Any]) -> dict[str, Any]:
    """An object as arguments of a handler: the whole, and parts of it by their names in kopf."""
    meta = body.get("metadata") or {}
    return {
        "body": body,
        "spec": body.get("spec") or {},
        "meta": meta,
        "status": body.get("status") or {},
        "name": meta.get("name"),
        "namespace": meta.get("namespace"),
        "uid": meta.get("uid"),
        "labels": meta.get("labels") or {},
        "annotations": meta.get("annotations") or {},
    }
