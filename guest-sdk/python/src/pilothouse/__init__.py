"""Write a Kubernetes operator as functions, in the manner of kopf, and build it into a WebAssembly component.

    import pilothouse
    from pilothouse import CONFIG_MAP

    pilothouse.plugin("greeter", version="0.1.0")
    pilothouse.controller("example.com", "v1", "greetings", kind="Greeting", children=[CONFIG_MAP])

    @pilothouse.on.create("example.com", "v1", "greetings")
    @pilothouse.on.update("example.com", "v1", "greetings")
    def greet(spec, name, logger, **_):
        logger.info("greeting %s", name)
        pilothouse.apply({**CONFIG_MAP.object(name), "data": {"text": spec["text"]}})
        return {"greeted": True}

`python -m pilothouse build greeter.py -o greeter.wasm` makes the component; `pilothouse.testing` runs the same functions
in any Python, without WebAssembly, a host or a cluster.

What is different from kopf, because the host is level-triggered and a plugin has no memory:

- A handler is called with what there is, not with what happened. It says what shall be there; the host finds out what
  has to be written, and writes nothing if all is as it should be.
- `on.create` and `on.update` handlers run on every pass over an object that is not being deleted: after each change of
  the object, of its children and of what it relates to, and at each resync. There is no mark of "handled before" to
  tell them apart. What has to be remembered stands in the status.
- `on.validate` and `on.mutate` make webhooks of the plugin: the host serves them, and tells the API server.
- Nothing is imported at run time: a module that a handler needs is imported at the top of the file, as that is what the
  component is made of. Modules of the standard library are there; files, network, variables and arguments are not, and
  `time`, `datetime`, `random`, `uuid` and `secrets` are functions of the pass alone.
"""

from . import on
from .actions import (
    apply,
    condition,
    delete,
    deleting,
    event,
    extension,
    generate_secret,
    look_up,
    patch_target,
    requeue_after,
)
from .errors import AdmissionError, PermanentError, TemporaryError
from .kinds import (
    CONFIG_MAP,
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    HORIZONTAL_POD_AUTOSCALER,
    INGRESS,
    JOB,
    NAMESPACE,
    NETWORK_POLICY,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    POD_DISRUPTION_BUDGET,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Resource,
)
from .objects import Answer, Objects, Rejected
from .registry import Child, Related, Target, controller, guard, manifest, plugin

reconcile = on.reconcile

__all__ = [
    "AdmissionError",
    "Answer",
    "CONFIG_MAP",
    "CRON_JOB",
    "Child",
    "DAEMON_SET",
    "DEPLOYMENT",
    "HORIZONTAL_POD_AUTOSCALER",
    "INGRESS",
    "JOB",
    "NAMESPACE",
    "NETWORK_POLICY",
    "NODE",
    "Objects",
    "PERSISTENT_VOLUME_CLAIM",
    "POD",
    "POD_DISRUPTION_BUDGET",
    "PermanentError",
    "ROLE",
    "ROLE_BINDING",
    "Rejected",
    "Related",
    "Resource",
    "SECRET",
    "SERVICE",
    "SERVICE_ACCOUNT",
    "STATEFUL_SET",
    "Target",
    "TemporaryError",
    "apply",
    "condition",
    "controller",
    "delete",
    "deleting",
    "event",
    "extension",
    "generate_secret",
    "guard",
    "look_up",
    "manifest",
    "on",
    "patch_target",
    "plugin",
    "reconcile",
    "requeue_after",
]
