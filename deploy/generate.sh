#!/usr/bin/env bash
# Writes the files below DEPLOY that the program prints. Usage: deploy/generate.sh TARGET DEPLOY
set -euo pipefail
target=$1 deploy=$2
header="# Printed by the program; \`make generate\` writes it and a test compares."

mkdir -p "$deploy/crds" "$deploy/rbac"
for plugin in chaos-pod egapp pod-replica postgres-cluster website; do
  component=$target/plugins/$plugin.wasm
  { echo "$header"; "$target/release/pilothouse" crds "$component"; } > "$deploy/crds/$plugin.yaml"
  # A role of its own for each further plugin: what is installed without it lacks nothing and has no right too many.
  role=pilothouse
  [[ $plugin == postgres-cluster ]] || role=pilothouse-$plugin
  # The host of deploy/base serves webhooks, whoever brings some.
  webhooks=()
  [[ $plugin != postgres-cluster ]] || webhooks=(--webhooks)
  {
    echo "$header"
    "$target/release/pilothouse" rbac "$component" --service-account pilothouse-system/pilothouse --role "$role" "${webhooks[@]}"
  } > "$deploy/rbac/$plugin.yaml"
done
