"""`python -m pilothouse`: builds a plugin into a component, and prints its manifest."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .build import BuildError, build, describe


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m pilothouse", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    of_build = commands.add_parser("build", help="make a component of a plugin")
    of_build.add_argument("plugin", type=Path, help="the file that names the plugin and its handlers, NAME.py")
    of_build.add_argument("-o", "--output", type=Path, help="the component [default: NAME.wasm beside it]")
    of_build.add_argument(
        "-p", "--path", type=Path, action="append", default=[], help="a directory with further modules; may be repeated"
    )
    of_manifest = commands.add_parser("manifest", help="print a plugin's manifest as JSON")
    of_manifest.add_argument("plugin", type=Path)
    arguments = parser.parse_args()
    try:
        if arguments.command == "manifest":
            print(describe(arguments.plugin))
        else:
            build(arguments.plugin, arguments.output or arguments.plugin.with_suffix(".wasm"), arguments.path)
    except BuildError as error:
        print(f"pilothouse: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
