#!/usr/bin/env bash
# Writes what the SDKs for Python and JavaScript have of the contract: a copy, as their packages are used without this
# repository, and types made of it. Plugins that serve the kind of another one get its CustomResourceDefinition. Tests
# compare. Usage: guest-sdk/generate.sh TARGET
set -euo pipefail
target=$(realpath "$1")
source "$(dirname "${BASH_SOURCE[0]}")/tools.sh"
cd "$root/guest-sdk"

python_tools
cp ../wit/operator.wit python/src/pilothouse/operator.wit
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
"$python" -c 'import sys; from componentize_py import script; sys.exit(script())' \
  --quiet --wit-path ../wit/operator.wit --world guarding-plugin --world-module pilothouse_wit bindings "$made/bindings"
rm -rf python/src/pilothouse_wit
cp -r "$made/bindings/pilothouse_wit" "$made/bindings/componentize_py_types.py" python/src

javascript_tools
node javascript/generate.mjs

crd() {
  "$target/release/pilothouse" inspect --output json "$target/plugins/$1.wasm" \
    | "$python" -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["manifest"]["crds"][0], indent=2))' \
    > "../plugins/$2/crd.json"
}
crd postgres-cluster postgres-cluster-python
crd config-map greeting-go
