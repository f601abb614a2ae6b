"""A plugin that guards its kind in every way that the SDK has: refusals, warnings, mutations, and mistakes."""

import pilothouse
from pilothouse import AdmissionError

BOOKINGS = ("python.pilothouse.dev", "v1", "bookings")
SPEC = {
    "type": "object",
    "required": ["room", "seats"],
    "properties": {
        "room": {"type": "string"},
        "seats": {"type": "integer"},
        "title": {"type": "string"},
        "held": {"type": "boolean"},
        "behaviour": {"type": "string"},
    },
}

pilothouse.plugin("guarding-python", version="0.1.0")
pilothouse.controller(
    *BOOKINGS,
    kind="Booking",
    crd={
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "bookings.python.pilothouse.dev"},
        "spec": {
            "group": "python.pilothouse.dev",
            "scope": "Namespaced",
            "names": {"kind": "Booking", "listKind": "BookingList", "plural": "bookings", "singular": "booking"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.seats", "statusReplicasPath": ".status.seats"}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "required": ["spec"],
                            "properties": {
                                "spec": SPEC,
                                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                            },
                        }
                    },
                }
            ],
        },
    },
)


@pilothouse.reconcile(*BOOKINGS)
def reconcile(spec, **_):
    return {"seats": spec["seats"]}


@pilothouse.on.mutate(*BOOKINGS)
def complete(spec, name, userinfo, patch, **_):
    if "title" not in spec:
        patch.spec["title"] = f"{name} for {userinfo['username']}"
    if spec.get("behaviour") == "rename":
        patch["metadata"] = {"name": "other"}


@pilothouse.on.validate(*BOOKINGS)
def check(spec, old, operation, dryrun, warnings, **_):
    if spec.get("behaviour") == "raise":
        raise KeyError("words of a mistake")
    warnings.append(f"{operation}, dry run: {str(dryrun).lower()}")
    wrong = []
    if spec["seats"] < 1:
        wrong.append(AdmissionError("1 or more would be right", field="spec.seats"))
    if old is not None and spec["room"] != old["spec"]["room"]:
        wrong.append(AdmissionError("a booking does not move", field="spec.room", reason="FieldValueForbidden"))
    if wrong:
        raise ExceptionGroup("wrong", wrong)


@pilothouse.on.validate(*BOOKINGS, operations=["UPDATE"], subresource="scale")
def check_scale(spec, **_):
    if spec["replicas"] > 100:
        raise AdmissionError("at most 100 would be right", field="spec.replicas")


@pilothouse.on.validate(*BOOKINGS, operations=["DELETE"])
def check_deletion(spec, **_):
    if spec.get("held"):
        raise AdmissionError("the booking is held", field="spec.held", reason="FieldValueForbidden")
