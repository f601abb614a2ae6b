"""Decorators that make a function a handler: `create`, `update`, `delete`, and `reconcile` for the first two.

A handler takes what it needs by name, and `**_` for the rest:

- `body`, the whole object, and of it `spec`, `meta`, `status`, `labels`, `annotations` (dictionaries, empty if absent),
  `name`, `namespace` (none for cluster-scoped kinds) and `uid`
- `children`: the objects that it owns, as `Objects`; `related`: by the name of the rule, an `Answer` each
- `rejected`: actions of the previous pass that failed, as `Rejected`
- `now`, the time of the pass as an aware `datetime`; `config`, the plugin's configuration
- `logger`, a `logging.Logger` whose lines go to the host's log under the pass

What it returns, a dictionary or nothing, is merged into the status; if no handler returned one, the status stays as it
is. Conditions are set with `pilothouse.condition`. The host adds `observedGeneration`.
"""

from __future__ import annotations

from typing import Callable

from .registry import H, current, register


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
