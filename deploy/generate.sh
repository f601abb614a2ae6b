#!/usr/bin/env bash
# Writes the files below DEPLOY that the program prints. Usage: deploy/generate.sh TARGET DEPLOY
set -euo pipefail
target=$1 deploy=$2
plugin=$target/plugins/postgres-cluster.wasm
header="# Printed by the program; \`make generate\` writes it and a test compares."

mkdir -p "$deploy/crds" "$deploy/rbac"
{ echo "$header"; "$target/release/pilothouse" crds "$plugin"; } > "$deploy/crds/postgres-cluster.yaml"
{
  echo "$header"
  "$target/release/pilothouse" rbac "$plugin" --service-account pilothouse-system/pilothouse
} > "$deploy/rbac/postgres-cluster.yaml"
