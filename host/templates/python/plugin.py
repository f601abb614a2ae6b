"""The plugin `{{name}}`: a ConfigMap for each {{kind}}."""

import json
from pathlib import Path

import pilothouse
from pilothouse import CONFIG_MAP, PermanentError

KIND = ("{{group}}", "{{version}}", "{{plural}}")

# What the plugin is and may touch: the host allows it nothing else.
pilothouse.plugin("{{name}}", version="0.1.0")
pilothouse.controller(
    *KIND,
    kind="{{kind}}",
    children=[CONFIG_MAP],
    # Read while the component is built.
    crd=json.loads(Path(__file__).with_name("crd.json").read_text()),
)


@pilothouse.reconcile(*KIND)
def reconcile(spec, name, children, **_):
    """One pass: says what shall be there. The host finds out what of that has to be written."""
    message = spec["message"]
    if not message.strip():
        raise PermanentError("spec.message: is blank, a text would be right")
    config_map = f"{name}-message"
    pilothouse.apply({**CONFIG_MAP.object(config_map), "data": {"message": message}})

    if children.named(CONFIG_MAP, config_map):
        pilothouse.condition("Ready", True, "Written", "the ConfigMap is there")
    else:
        pilothouse.condition("Ready", False, "Writing", "the ConfigMap is not there yet")
    return {"configMap": config_map}
