"""Checks an object by the schema of its CustomResourceDefinition, before a handler is called: what is required is there, and what
is there is of its type.

The API server checks that, and more, of what is written today. It does not of an object that was stored before the schema
said so, or where the definition in the cluster is another one. To a handler such an object is a `KeyError` or a `TypeError`,
which would be tried again for ever and tell its user nothing.
"""

from __future__ import annotations

from typing import Any

_TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}
_NAMES = {"object": "a mapping", "array": "a list", "string": "a text", "boolean": "true or false",
          "integer": "a whole number", "number": "a number"}


def of_version(crd: dict[str, Any] | None, version: str) -> dict[str, Any]:
    """The schema of a version; one that allows all if there is none."""
    versions = (crd or {}).get("spec", {}).get("versions", [])
    found = next((one for one in versions if one.get("name") == version), {})
    return found.get("schema", {}).get("openAPIV3Schema", {})


def problem(body: dict[str, Any], schema: dict[str, Any]) -> str | None:
    """The first thing that is wrong with an object's `spec`: the field, and what would be right."""
    spec = schema.get("properties", {}).get("spec")
    if spec is None:
        return None
    if body.get("spec") is None:
        return "spec: is missing" if "spec" in schema.get("required", ()) else None
    return _problem("spec", body["spec"], spec)


def _problem(path: str, value: Any, schema: dict[str, Any]) -> str | None:
    if schema.get("x-kubernetes-int-or-string"):
        return None if _is(value, "integer") or _is(value, "string") else f"{path}: a whole number or a text would be right"
    kind = schema.get("type")
    if kind is not None and not _is(value, kind):
        return f"{path}: {_NAMES.get(kind, kind)} would be right"
    if "enum" in schema and value not in schema["enum"]:
        return f"{path}: {value!r} is none of {', '.join(map(repr, schema['enum']))}"
    if isinstance(value, dict):
        properties, more = schema.get("properties", {}), schema.get("additionalProperties")
        for name in schema.get("required", ()):
            if value.get(name) is None and not properties.get(name, {}).get("nullable"):
                return f"{path}.{name}: is missing"
        below = ((f"{path}.{name}", one, properties.get(name, more)) for name, one in value.items())
    elif isinstance(value, list):
        below = ((f"{path}[{at}]", one, schema.get("items")) for at, one in enumerate(value))
    else:
        return None
    # Null is as good as absent, and what the schema does not know is the API server's to drop.
    known = ((at, one, of) for at, one, of in below if one is not None and isinstance(of, dict))
    return next((found for at, one, of in known if (found := _problem(at, one, of))), None)


def _is(value: Any, kind: str) -> bool:
    # To Python a boolean is a number.
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, object))
