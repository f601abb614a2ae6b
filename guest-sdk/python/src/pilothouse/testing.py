"""Runs handlers in any Python, with plain values: no WebAssembly, no host, no cluster.

    import greeter
    from pilothouse.testing import reconcile

    outcome = reconcile({"apiVersion": "example.com/v1", "kind": "Greeting",
                         "metadata": {"name": "hello", "namespace": "shop"}, "spec": {"text": "good day"}})
    assert outcome.applied("ConfigMap", "hello")["data"] == {"text": "good day"}
    assert outcome.status == {"greeted": True}

`validate` and `mutate` ask what the API server would ask before it stores an object:

    assert str(validate({..., "spec": {"text": ""}})) == "spec.text: say something"
    assert mutate({..., "spec": {}})["spec"] == {"text": "hello"}

What it does not pretend: defaults and refusals of the API server, and the host's check of actions against the manifest,
which `pilothouse render` does with the component.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Iterable, Iterator, Mapping

from pilothouse_wit.exports import admission as wit
from pilothouse_wit.imports import types

from . import passes
from . import registry
from .admission import Admission
from .guards import Operation, Subresource
from .registry import Plugin


@dataclass(frozen=True)
class Outcome:
    """What a pass decided."""

    actions: list[types.Action]
    failure: types.Failure | None

    def applied(self, kind: str, name: str) -> dict[str, Any]:
        """The object of this kind and name that is applied."""
        for body in self.objects:
            if (body["kind"], body["metadata"]["name"]) == (kind, name):
                return body
        raise KeyError(f"{kind} {name} is not applied; {[(b['kind'], b['metadata']['name']) for b in self.objects]} are")

    @property
    def objects(self) -> list[dict[str, Any]]:
        """All objects that are applied, in order."""
        return [json.loads(one.value.object) for one in self.actions if isinstance(one, types.Action_Apply)]

    @property
    def status(self) -> dict[str, Any] | None:
        """The status without its conditions. None if it stays as it is."""
        status = self._status()
        return status and {name: value for name, value in status.items() if name != "conditions"}

    @property
    def conditions(self) -> dict[str, dict[str, Any]]:
        """The conditions that are set, by type."""
        return {one["type"]: one for one in (self._status() or {}).get("conditions", [])}

    @property
    def events(self) -> list[types.Event]:
        """The events that are recorded."""
        return [one.value for one in self.actions if isinstance(one, types.Action_RecordEvent)]

    @property
    def deleted(self) -> list[tuple[str, str]]:
        """Kinds and names of the objects that are deleted."""
        targets = (one.value.target for one in self.actions if isinstance(one, types.Action_Delete))
        return [(target.kind.kind, target.name) for target in targets]

    @property
    def asked(self) -> list[types.Query]:
        """Look-ups that have no answer."""
        return [one.value for one in self.actions if isinstance(one, types.Action_LookUp)]

    @property
    def requeued_seconds(self) -> float | None:
        """When it runs again, if it says so."""
        delays = [one.value for one in self.actions if isinstance(one, types.Action_RequeueAfter)]
        return min(delays) / 1000 if delays else None

    @property
    def released(self) -> bool:
        """Whether the object may go."""
        return any(isinstance(one, types.Action_Release) for one in self.actions)

    def _status(self) -> dict[str, Any] | None:
        return next((json.loads(one.value) for one in self.actions if isinstance(one, types.Action_SetStatus)), None)


def reconcile(
    body: dict[str, Any],
    *,
    children: Iterable[dict[str, Any]] = (),
    related: Mapping[str, Iterable[dict[str, Any]]] | None = None,
    rejected: Iterable[types.Rejected] = (),
    deleting: bool = False,
    config: dict[str, Any] | None = None,
    now: str = "2025-01-01T00:00:00Z",
    seed: int = 0,
) -> Outcome:
    """One pass over an object. `related` answers rules and look-ups by their names."""
    desired = types.Desired(
        primary=json.dumps(body), deleting=deleting, config=json.dumps(config or {}), now=now, seed=seed
    )
    observed = types.Observed(
        children=[json.dumps(child) for child in children],
        related=[
            types.Answer(query=query, complete=True, objects=[json.dumps(one) for one in objects])
            for query, objects in (related or {}).items()
        ],
        last=list(rejected),
    )
    outcome = passes.run(desired, observed)
    return Outcome(actions=outcome.actions, failure=outcome.failure)


@dataclass(frozen=True)
class Verdict:
    """What the plugin says of a request."""

    allowed: bool
    causes: list[wit.Cause]
    warnings: list[str]

    def __str__(self) -> str:
        """A line for each cause: the field, and what would be right."""
        return "\n".join(f"{one.field}: {one.message}" if one.field else one.message for one in self.causes)


def validate(
    body: dict[str, Any],
    *,
    old: dict[str, Any] | None = None,
    operation: Operation | None = None,
    subresource: Subresource | None = None,
    **asked: Any,
) -> Verdict:
    """What comes of a creation; of an update, if there is an `old` object; of the deletion of `body`, if `operation` says so.

    More arguments: `username`, `groups`, `dryrun`, `config`, `now`.
    """
    verdict = Admission().validate(_request(body, old, operation, subresource, **asked))
    return Verdict(allowed=verdict.allowed, causes=verdict.causes, warnings=verdict.warnings)


def mutate(body: dict[str, Any], *, old: dict[str, Any] | None = None, **asked: Any) -> dict[str, Any]:
    """The object with what the plugin fills in; arguments as those of `validate`.

    An error if it changes what it has completed already: that would never end.
    """

    def once(new: dict[str, Any]) -> dict[str, Any]:
        return json.loads(Admission().default_fields(_request(new, old, **asked)))

    completed = once(body)
    again = once(completed)
    if again != completed:
        raise AssertionError(f"mutated once more, {completed} becomes {again}: nothing may change")
    return completed


def _request(
    body: dict[str, Any],
    old: dict[str, Any] | None,
    operation: Operation | None = None,
    subresource: Subresource | None = None,
    *,
    username: str = "somebody",
    groups: Iterable[str] = ("system:authenticated",),
    dryrun: bool = False,
    config: dict[str, Any] | None = None,
    now: str = "2025-01-01T00:00:00Z",
) -> wit.AdmissionRequest:
    if operation is None:
        operation = "CREATE" if old is None else "UPDATE"
    new, old = (None, body) if operation == "DELETE" else (body, old)
    return wit.AdmissionRequest(
        operation=wit.Operation[operation],
        new=None if new is None else json.dumps(new),
        old=None if old is None else json.dumps(old),
        user=username,
        groups=list(groups),
        dry_run=dryrun,
        subresource=subresource or "",
        config=json.dumps(config or {}),
        now=now,
    )


@contextmanager
def fresh_plugin() -> Iterator[Plugin]:
    """Another plugin than that of the imported files, for tests that make one of their own."""
    new = Plugin()
    before = registry.replace(new)
    try:
        yield new
    finally:
        registry.replace(before)
