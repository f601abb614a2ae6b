"""Decorators that make a function a handler: `create`, `update`, `delete`, and `reconcile` for the first two; `validate`
and `mutate` for objects that are not stored yet.

A handler takes what it needs by name, and `**_` for the rest:

- `body`, the whole object, and of it `spec`, `meta`, `status`, `labels`, `annotations` (dictionaries, empty if absent),
  `name`, `namespace` (none for cluster-scoped kinds) and `uid`
- `children`: the objects that it owns, as `Objects`; `related`: by the name of the rule, an `Answer` each
- `rejected`: actions of the previous pass that failed, as `Rejected`
- `now`, the time of the pass as an aware `datetime`; `config`, the plugin's configuration
- `logger`, a `logging.Logger` whose lines go to the host's log under the pass

What it returns, a dictionary or nothing, is merged into the status; if no handler returned one, the status stays as it
is. Conditions are set with `pilothouse.condition`. The host adds `observedGeneration`.

`validate` and `mutate` handlers are called while the user waits, in `kubectl apply`. They take, beside `body` and its parts,
which are those of the object as it would be stored (on deletion, as it is), and `config`, `now`, `logger`:

- `operation`: ``"CREATE"``, ``"UPDATE"`` or ``"DELETE"``; `subresource`: ``"status"``, ``"scale"`` or none
- `old`, the object as it is stored, and `new`, as it would be: none on creation, and on deletion. `old` is none also if
  today's schema would refuse it, as nothing can be said of it then.
- `userinfo`, with `username` and `groups`; `dryrun`, whether nothing will be stored
- `warnings`, a list of texts to append to: the user sees them in any case
- `patch`, of `mutate` alone: what shall be changed, as a JSON merge patch: ``patch.spec["title"] = name``

`name` is none while it is to be generated. A handler is as pure as a pass. What it returns is nobody's.
"""

from __future__ import annotations

from typing import Callable, Iterable

from .guards import Check, Operation, Subresource
from .registry import CHECK_ARGUMENTS, MUTATION_ARGUMENTS, H, check_arguments, current, register


def reconcile(group: str, version: str, plural: str) -> Callable[[H], H]:
    """Called on every pass over an object that is not being deleted."""

    controller = current().controller((group, version, plural))

    def decorate(handler: H) -> H:
        register(controller.reconcilers, handler)
        return handler

    return decorate


def create(group: str, version: str, plural: str) -> Callable[[H], H]:
    """For those who come from kopf: the same as `reconcile`.

    A plugin has no memory of which objects it has seen, and needs none: to bring a new object to its goal and an old one
    back to it is one task. A function with both `create` and `update` is called once in a pass.
    """
    return reconcile(group, version, plural)


def update(group: str, version: str, plural: str) -> Callable[[H], H]:
    """For those who come from kopf: the same as `reconcile`, as `create` is."""
    return reconcile(group, version, plural)


def delete(group: str, version: str, plural: str) -> Callable[[H], H]:
    """Called while the object is being deleted, until it returns without an exception; then the object goes.

    A function that has other decorators too asks `pilothouse.deleting()`. The manifest gets a finalizer for it. Children
    go by themselves, so this is for what garbage collection does not know. To wait for something, raise
    `TemporaryError`.
    """

    controller = current().controller((group, version, plural))

    def decorate(handler: H) -> H:
        register(controller.deleters, handler)
        return handler

    return decorate


def validate(
    group: str,
    version: str,
    plural: str,
    *,
    operations: Iterable[Operation] = ("CREATE", "UPDATE"),
    subresource: Subresource | None = None,
) -> Callable[[H], H]:
    """May this object be stored, or with ``operations=["DELETE"]``: may it go? If not, raise `AdmissionError`.

    All handlers are asked, and each error is told with its field. With `subresource` the handler is asked about changes
    through it alone; that of ``"scale"``, as `kubectl scale` makes them, is shown as a `Scale`: ``spec["replicas"]``.
    Any other exception fails the call: then the kind's guard decides (`pilothouse.guard`).

    An object may be older than a check, or the cluster without webhooks: handlers of passes check as well, best by the
    same function.
    """
    guard = current().guard((group, version, plural))
    asked = Check.of(operations, subresource)

    def decorate(handler: H) -> H:
        check_arguments(handler, CHECK_ARGUMENTS)
        guard.checks.append(asked.by(handler))
        return handler

    return decorate


def mutate(
    group: str, version: str, plural: str, *, operations: Iterable[Operation] = ("CREATE", "UPDATE")
) -> Callable[[H], H]:
    """Fills in what the user left out, by way of `patch`, before the object is checked and stored.

    Called again with its own result it must change nothing, as the API server may call twice. The content of the object
    alone may change, not `metadata` nor `status`. Constant defaults are better said in the schema.
    """
    guard = current().guard((group, version, plural))
    asked = Check.of(operations, None)
    if "DELETE" in asked.operations:
        raise ValueError("operations: nothing can be changed when an object is deleted, `CREATE` or `UPDATE` would be right")

    def decorate(handler: H) -> H:
        check_arguments(handler, MUTATION_ARGUMENTS)
        guard.mutations.append(asked.by(handler))
        return handler

    return decorate
