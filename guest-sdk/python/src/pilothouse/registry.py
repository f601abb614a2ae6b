"""What a plugin says of itself: its name, the kinds that it serves and touches, and the functions that serve them.

One plugin is one program, so there is one, of the module: the functions here fill it in while the author's file is
imported. A mistake is an exception there, which fails the build.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Literal, Mapping, TypeVar

from . import schema as schemas
from .guards import Guard
from .kinds import Resource

Projection = Literal["full", "metadata"] | dict[str, list[str]]
Handler = Callable[..., "dict[str, Any] | None"]
H = TypeVar("H", bound=Handler)

_SHARED = frozenset("spec meta status name namespace uid labels annotations body logger now config".split())
ARGUMENTS = _SHARED | {"children", "related", "rejected"}
"""Names that a handler may have among its parameters."""
CHECK_ARGUMENTS = _SHARED | {"old", "new", "operation", "subresource", "dryrun", "userinfo", "warnings"}
"""Those of a handler of `on.validate`."""
MUTATION_ARGUMENTS = CHECK_ARGUMENTS | {"patch"}
"""Those of a handler of `on.mutate`."""


def _said(**fields: tuple[Any, Any]) -> dict[str, Any]:
    """Fields that differ from the manifest's defaults: a host that does not know one need not refuse it."""
    return {name: value for name, (value, default) in fields.items() if value != default}


@dataclass(frozen=True)
class Child:
    """A kind that the plugin creates and owns, with options of the manifest."""

    resource: Resource
    projection: Projection = "full"
    create_only: bool = False
    force_conflicts: bool = True
    namespaces: Literal["own", "any"] = "own"
    update_strategy: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "resource": self.resource.to_json(),
            **_said(
                projection=(self.projection, "full"),
                createOnly=(self.create_only, False),
                forceConflicts=(self.force_conflicts, True),
                namespaces=(self.namespaces, "own"),
                updateStrategy=(self.update_strategy, None),
            ),
        }


@dataclass(frozen=True)
class Related:
    """A kind that it reads without owning. Its objects are in ``related[name]``.

    The selector is kubectl's, and may use ``$(name)``, ``$(namespace)`` and ``$(uid)`` of the object that is
    reconciled. Without one, the kind is only for `look_up`.
    """

    name: str
    resource: Resource
    selector: str | None = None
    field_selector: str | None = None
    projection: Projection = "full"

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "resource": self.resource.to_json(),
            **_said(
                selector=(self.selector, None),
                fieldSelector=(self.field_selector, None),
                projection=(self.projection, "full"),
            ),
        }


@dataclass(frozen=True)
class Target:
    """A kind that it changes or deletes without owning: `patch`, `patch-status`, `patch-scale`, `delete`."""

    resource: Resource
    verbs: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"resource": self.resource.to_json(), "verbs": list(self.verbs)}


@dataclass
class Controller:
    """One primary kind and its handlers."""

    primary: Resource
    children: list[Child]
    related: list[Related]
    targets: list[Target]
    finalizer: str | None
    resync_seconds: int | None
    schema: dict[str, Any] = field(default_factory=dict)
    reconcilers: list[Handler] = field(default_factory=list)
    deleters: list[Handler] = field(default_factory=list)


@dataclass
class Plugin:
    """All that was said so far."""

    name: str | None = None
    version: str = "0.0.0"
    crds: list[dict[str, Any]] = field(default_factory=list)
    controllers: dict[tuple[str, str, str], Controller] = field(default_factory=dict)
    guards: dict[tuple[str, str, str], Guard] = field(default_factory=dict)

    def controller(self, key: tuple[str, str, str]) -> Controller:
        found = self.controllers.get(key)
        if found is None:
            known = ", ".join("/".join(key) for key in self.controllers) or "none"
            raise ValueError(
                f"no controller of {'/'.join(key)} (there is {known}): say `pilothouse.controller(...)` before its handlers"
            )
        return found

    def serving(self, body: dict[str, Any]) -> Controller | None:
        """The controller of an object's kind."""
        return next((one for one in self.controllers.values() if one.primary.is_kind_of(body)), None)

    def guard(self, key: tuple[str, str, str]) -> Guard:
        """The guard of a kind that has a controller, or was named by `pilothouse.guard`."""
        found = self.guards.get(key)
        if found is None:
            controller = self.controllers.get(key)
            if controller is None:
                raise ValueError(
                    f"nothing is known of {'/'.join(key)}: say `pilothouse.controller(...)`, or for a kind that is only "
                    "guarded `pilothouse.guard(..., kind=KIND)`, before its handlers"
                )
            found = self.guards[key] = Guard(controller.primary, controller.schema)
        return found

    def manifest(self) -> dict[str, Any]:
        if self.name is None:
            raise ValueError("the plugin has no name: say `pilothouse.plugin(NAME, version=VERSION)`")
        for key, controller in self.controllers.items():
            if not controller.reconcilers:
                raise ValueError(f"{'/'.join(key)} has no handler: `@pilothouse.on.create(...)` makes a function one")
        guards = [one.to_json() for one in self.guards.values()]
        scaled = [one.resource.kind for one in self.guards.values() if "scale" in one.subresources]
        if len(scaled) > 1:
            raise ValueError(
                f"{' and '.join(scaled)} have handlers for `scale`: a plugin has them for one kind, as a scale does not say "
                "of which kind it is"
            )
        return {
            "name": self.name,
            "version": self.version,
            "crds": self.crds,
            "controllers": [self._controller_to_json(one) for one in self.controllers.values()],
            # A component exports `admission` if there are any.
            **_said(admission=(guards, [])),
        }

    def _controller_to_json(self, controller: Controller) -> dict[str, Any]:
        finalizer = controller.finalizer
        if finalizer is None and controller.deleters:
            group = controller.primary.group
            if "." not in group:
                raise ValueError(
                    f"{controller.primary.kind} has an `on.delete` handler, and its group is no domain: say "
                    "`finalizer=\"example.com/cleanup\"` with one of yours"
                )
            # Only of the plugin's name, which is its identity: one that changed from version to version would be
            # released by nobody.
            finalizer = f"{group}/{self.name}"
        return {
            "primary": controller.primary.to_json(),
            "children": [child.to_json() for child in controller.children],
            "related": [rule.to_json() for rule in controller.related],
            "targets": [target.to_json() for target in controller.targets],
            **_said(finalizer=(finalizer, None), resyncSeconds=(controller.resync_seconds, None)),
        }


_current = Plugin()


def current() -> Plugin:
    """The plugin that is being told of, or runs."""
    return _current


def replace(plugin: Plugin) -> Plugin:
    """Puts another in its place, for tests; returns the one before."""
    global _current
    before, _current = _current, plugin
    return before


def plugin(name: str, *, version: str) -> None:
    """Names the plugin. The name is its identity: field manager, label values and finalizers are made of it."""
    _current.name = name
    _current.version = version


def controller(
    group: str,
    version: str,
    plural: str,
    *,
    kind: str,
    scope: Literal["Namespaced", "Cluster"] = "Namespaced",
    children: Iterable[Resource | Child] = (),
    related: Iterable[Related] = (),
    targets: Iterable[Target] = (),
    finalizer: str | None = None,
    resync_seconds: int | None = None,
    crd: dict[str, Any] | None = None,
) -> Resource:
    """Says which kind is reconciled, and what may be touched for its objects.

    `children` are the kinds that handlers may `apply`; `related` and `targets` as described at `Related` and `Target`.
    `crd` is a whole CustomResourceDefinition, if the plugin brings its kind along: each object is checked by its schema before a
    handler is called, and the host's own condition is written to such kinds alone. With an `on.delete` handler `finalizer`
    is GROUP/PLUGIN unless it is given.
    """
    key = (group, version, plural)
    if key in _current.controllers:
        raise ValueError(f"{'/'.join(key)} has a controller already")
    primary = Resource(group, version, plural, kind, scope)
    _current.controllers[key] = Controller(
        primary=primary,
        children=[child if isinstance(child, Child) else Child(child) for child in children],
        related=list(related),
        targets=list(targets),
        finalizer=finalizer,
        resync_seconds=resync_seconds,
        schema=schemas.of_version(crd, version),
    )
    if crd is not None:
        _current.crds.append(crd)
    return primary


def guard(
    group: str,
    version: str,
    plural: str,
    *,
    kind: str | None = None,
    scope: Literal["Namespaced", "Cluster"] = "Namespaced",
    ignore_failures: bool = False,
    timeout_seconds: int = 10,
    exact_version: bool = False,
    reinvoke: bool = False,
    object_selector: dict[str, Any] | None = None,
    match_conditions: Mapping[str, str] | None = None,
) -> None:
    """Says how a kind is guarded that has handlers of `on.validate` or `on.mutate`, where the defaults do not fit.

    With `ignore_failures` requests go on unchecked while the plugin does not answer, instead of failing. After
    `timeout_seconds`, 1 to 30, the API server gives up. With `exact_version` requests for other versions of the kind do
    not count; else they are shown in this one. With `reinvoke` mutations run once more when another webhook has changed
    the object since. `object_selector` (``{"matchLabels": {...}}``) and `match_conditions` (names and CEL expressions)
    narrow what is asked about.

    A kind that the plugin does not reconcile needs its `kind` and `scope` here, before its handlers. Kinds of others
    are guarded by the administrator's grant.
    """
    key = (group, version, plural)
    if kind is not None:
        if key in _current.controllers:
            raise ValueError(f"{'/'.join(key)} has a controller, which says its `kind`")
        if key not in _current.guards:
            _current.guards[key] = Guard(Resource(group, version, plural, kind, scope), {})
    found = _current.guard(key)
    if found.options is not None:
        raise ValueError(f"{'/'.join(key)} has a guard already")
    conditions = [{"name": name, "expression": text} for name, text in (match_conditions or {}).items()]
    found.options = _said(
        failurePolicy=("Ignore" if ignore_failures else "Fail", "Fail"),
        timeoutSeconds=(timeout_seconds, 10),
        matchPolicy=("Exact" if exact_version else "Equivalent", "Equivalent"),
        reinvocation=("IfNeeded" if reinvoke else "Never", "Never"),
        objectSelector=(object_selector, None),
        matchConditions=(conditions, []),
    )


def manifest() -> dict[str, Any]:
    """The manifest, in the form of `manifest.schema.json`."""
    return _current.manifest()


def register(handlers: list[Handler], handler: Handler) -> None:
    """Adds a handler once, however many decorators name it, and checks that it can be called."""
    check_arguments(handler, ARGUMENTS)
    if handler not in handlers:
        handlers.append(handler)


def check_arguments(handler: Handler, known: frozenset[str]) -> None:
    """Refuses a handler that has a parameter which it would not be given."""
    for name, parameter in inspect.signature(handler).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        by_name = parameter.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if by_name and (name in known or parameter.default is not inspect.Parameter.empty):
            continue
        raise TypeError(f"{handler.__name__}: no argument is called `{name}`; there are {', '.join(sorted(known))}")


def accepted(handler: Handler, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a handler has names for: all, if it has `**_`."""
    parameters = inspect.signature(handler).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}
