#!/usr/bin/env bash
# Ends what run.sh started: the host first, then the control plane. Usage: deploy/local/stop.sh TARGET
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source deploy/local/lib.sh

take_lock
if end_host; then say "the host has ended"; else say "no host was running"; fi
rm -rf "$state"
"$1/release/pilothouse-harness" down
