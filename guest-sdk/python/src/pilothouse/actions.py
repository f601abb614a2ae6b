"""What a handler may decide: functions that add to the actions of the pass that runs.

They are carried out in the order of the calls, after the pass, and only if the manifest allows them. What an option
means stands in `operator.wit`.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Iterator, Literal, Mapping

from pilothouse_wit.imports import types

from .errors import Unanswered
from .kinds import Resource
from .objects import Answer

Alphabet = Literal["alphanumeric", "hexadecimal", "base64url"]


@dataclass
class Collected:
    """The actions of one pass so far."""

    actions: list[types.Action] = field(default_factory=list)
    status: dict[str, Any] | None = None
    conditions: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    deleting: bool = False


_running: Collected | None = None


@contextmanager
def collecting(answers: dict[str, Answer], deleting: bool) -> Iterator[Collected]:
    """Makes a list that the functions of this module add to."""
    global _running
    _running = Collected(answers=answers, deleting=deleting)
    try:
        yield _running
    finally:
        _running = None


def _pass() -> Collected:
    if _running is None:
        raise RuntimeError("no pass is running: actions are for handlers to decide")
    return _running


def deleting() -> bool:
    """Whether the object is being deleted, for handlers that are called in both cases."""
    return _pass().deleting


def _options(**options: Any) -> str:
    """What differs from the contract's defaults; empty if nothing does."""
    given = {name: value for name, value in options.items() if value is not None}
    return text(given) if given else ""


def text(value: Any) -> str:
    """As JSON. Keys stay in their order, which is the author's, so the same decision is the same text."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _kind(resource: Resource) -> types.Kind:
    return types.Kind(group=resource.group, version=resource.version, kind=resource.kind)


def _reference(kind: Resource, name: str, namespace: str | None, uid: str | None) -> types.Reference:
    return types.Reference(kind=_kind(kind), namespace=namespace, name=name, uid=uid)


def apply(
    body: dict[str, Any],
    *,
    create_only: bool | None = None,
    on_immutable: Literal["refuse", "recreate-orphan", "recreate"] | None = None,
) -> None:
    """Creates a child, or brings it to this state.

    `body` has the fields that the plugin decides and no others; the host adds namespace, owner and label. Fields that an
    earlier pass had and this one leaves out are removed.
    """
    options = _options(createOnly=create_only, onImmutable=on_immutable)
    _pass().actions.append(types.Action_Apply(types.Apply(object=text(body), options=options)))


def delete(
    kind: Resource,
    name: str,
    *,
    namespace: str | None = None,
    uid: str | None = None,
    propagation: Literal["background", "foreground", "orphan"] | None = None,
    grace_period_seconds: int | None = None,
) -> None:
    """Deletes a child, or an object of a kind among the manifest's targets."""
    options = _options(propagation=propagation, gracePeriodSeconds=grace_period_seconds)
    deletion = types.Deletion(target=_reference(kind, name, namespace, uid), options=options)
    _pass().actions.append(types.Action_Delete(deletion))


def patch_target(
    kind: Resource,
    name: str,
    patch: dict[str, Any],
    *,
    namespace: str | None = None,
    uid: str | None = None,
    subresource: Literal["status", "scale"] | None = None,
) -> None:
    """Changes an object of a kind among the manifest's targets, by a JSON merge patch."""
    target = _reference(kind, name, namespace, uid)
    change = types.TargetPatch(target=target, patch=text(patch), options=_options(subresource=subresource))
    _pass().actions.append(types.Action_PatchTarget(change))


def generate_secret(
    name: str,
    *,
    literals: Mapping[str, str] | None = None,
    random: Mapping[str, tuple[int, Alphabet]] | None = None,
    composed: Mapping[str, str] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    type: str | None = None,
) -> None:
    """Creates or completes a Secret with values that the host draws and no plugin sees.

    `random` names for each key its length, 16 to 256, and its characters; in `composed` texts, ``$(key)`` stands for the
    value of another key and ``$$`` for a dollar sign.
    """
    pairs = lambda of: [types.KeyValue(key=key, value=value) for key, value in (of or {}).items()]  # noqa: E731
    drawn = [
        types.RandomKey(key=key, length=length, alphabet=types.Alphabet[alphabet.upper()])
        for key, (length, alphabet) in (random or {}).items()
    ]
    template = types.SecretTemplate(
        name=name,
        literals=pairs(literals),
        random=drawn,
        composed=pairs(composed),
        options=_options(labels=labels, annotations=annotations, type=type),
    )
    _pass().actions.append(types.Action_GenerateSecret(template))


def condition(type: str, status: bool | None, reason: str, message: str = "") -> None:
    """Sets a condition of the status: true, false or, with none, unknown. Repeated, the last one counts.

    `reason` is one word in upper camel case. The host keeps `lastTransitionTime` right.
    """
    word = "Unknown" if status is None else str(bool(status))
    _pass().conditions[type] = {"type": type, "status": word, "reason": reason, "message": message}


def event(reason: str, message: str, *, warning: bool = False) -> None:
    """Records a Kubernetes Event about the object. The host counts repeats."""
    severity = types.Severity.WARNING if warning else types.Severity.NORMAL
    _pass().actions.append(types.Action_RecordEvent(types.Event(severity=severity, reason=reason, message=message)))


def requeue_after(seconds: float) -> None:
    """Runs again after this time at the latest: 0.1 s to a day. The shortest of several counts."""
    _pass().actions.append(types.Action_RequeueAfter(max(0, round(seconds * 1000))))


def extension(name: str, body: Any) -> None:
    """An action that the contract does not know as a case of its own."""
    _pass().actions.append(types.Action_Extension(types.Extension(name=name, body=text(body))))


def look_up(
    id: str,
    kind: Resource,
    *,
    name: str | None = None,
    namespace: str | None = None,
    selector: str | None = None,
    limit: int | None = None,
) -> Answer:
    """Objects that the plugin does not own, of a kind among the manifest's related.

    While there is no answer the pass ends here, as if by an exception; the host calls again at once with the answer, and
    what was decided before is forgotten and decided anew. At most 5 look-ups can follow one another in a pass.
    """
    running = _pass()
    if id in running.answers:
        return running.answers[id]
    options = _options(labelSelector=selector, limit=limit)
    query = types.Query(id=id, kind=_kind(kind), namespace=namespace, name=name, options=options)
    running.actions.append(types.Action_LookUp(query))
    raise Unanswered(id)
