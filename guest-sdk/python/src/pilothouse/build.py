"""From a plugin's file to a component, by componentize-py: CPython with every module that the file imports, started,
the imports done, and its memory frozen. A call of the component begins right there.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Sequence

from . import registry

COMPONENTIZE_VERSION = "0.25.1"
"""As in requirements.txt. Components of other versions are as good, if the host has their WASI."""

WORLD_MODULE = "pilothouse_wit"
"""Where this package and componentize-py agree that the contract's types are."""

_ENTRY = """\
import {plugin}
from pilothouse.component import Reconciler
"""

_GUARDING_ENTRY = """\
from pilothouse.admission import Admission
"""


class BuildError(Exception):
    """What is wrong, and what would be right."""


def build(plugin: Path, output: Path, paths: Sequence[Path] = ()) -> None:
    """Writes the component of a plugin."""
    # A mistake in the file is told by this Python, in words rather than by a trap.
    # What is exported is part of what the host knows a plugin by, so that of one without webhooks is a pass alone.
    guards = "admission" in json.loads(describe(plugin))
    if importlib.util.find_spec("componentize_py") is None:
        raise BuildError(
            f"componentize-py is not installed for {sys.executable}: `{sys.executable} -m pip install "
            f"componentize-py=={COMPONENTIZE_VERSION}`"
        )
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory(prefix="pilothouse-") as directory:
        entry = Path(directory) / "pilothouse_entry.py"
        entry.write_text(_ENTRY.format(plugin=plugin.stem) + (_GUARDING_ENTRY if guards else ""))
        package = Path(directory) / "sdk"
        package.mkdir()
        # Only what runs inside: not the tests' and the builder's modules, nor the stubs, which componentize-py has.
        inside = package / "pilothouse"
        inside.mkdir()
        for module in here.glob("*.py"):
            if module.stem not in ("build", "testing", "__main__"):
                (inside / module.name).write_bytes(module.read_bytes())
        python_path = [directory, str(package), str(plugin.resolve().parent), *(str(path.resolve()) for path in paths)]
        component = Path(directory) / "component.wasm"
        command = [sys.executable, "-c", "import sys; from componentize_py import script; sys.exit(script())"]
        command += ["--quiet", "--wit-path", str(here / "operator.wit"), "--world", "guarding-plugin" if guards else "plugin"]
        command += ["--world-module", WORLD_MODULE, "componentize", "--output", str(component)]
        for path in python_path:
            command += ["--python-path", path]
        command.append("pilothouse_entry")
        done = subprocess.run(command, capture_output=True, text=True, cwd=directory)
        if done.returncode != 0:
            raise BuildError(f"{plugin}: componentize-py failed:\n{done.stdout}{done.stderr}")
        output.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all, as the host may watch the directory: beside the target, and renamed.
        beside = output.with_name(f".{output.name}.{os.getpid()}")
        beside.write_bytes(component.read_bytes())
        beside.replace(output)


def describe(plugin: Path) -> str:
    """The manifest of a plugin's file, as JSON."""
    if not plugin.is_file():
        raise BuildError(f"{plugin}: no such file")
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", plugin.stem) is None:
        raise BuildError(f"{plugin}: `{plugin.stem}` is no name of a module: letters, digits and `_` would be right")
    sys.path.insert(0, str(plugin.resolve().parent))
    before = registry.replace(registry.Plugin())
    try:
        sys.modules.pop(plugin.stem, None)
        importlib.import_module(plugin.stem)
        return json.dumps(registry.manifest(), indent=2)
    except Exception as error:
        raise BuildError(f"{plugin}: {type(error).__name__}: {error}") from error
    finally:
        registry.replace(before)
        sys.path.pop(0)
