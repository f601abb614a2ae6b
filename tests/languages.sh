#!/usr/bin/env bash
# Runs the tests of the SDKs and plugins in Python, JavaScript and Go, each by its own runner, and ends each with cargo's
# line, so that they are counted with the others.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source guest-sdk/tools.sh
python_tools
javascript_tools
go_tools
export PYTHONDONTWRITEBYTECODE=1

status=0
result() {
  local word=ok
  if (($1 == 0 || $2 > 0)); then word=FAILED status=1; fi
  echo "test result: $word. $1 passed; $2 failed;"
}

in_python() {
  local output total failed
  echo "Running $2"
  output=$(PYTHONPATH=$root/guest-sdk/python/src:$1 "$python" -m unittest discover --verbose --start-directory "$2" 2>&1) || true
  echo "$output"
  total=$(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' <<< "$output")
  failed=$(sed -n 's/^FAILED (\(.*\))$/\1/p' <<< "$output" | { grep -oE '(failures|errors)=[0-9]+' || true; } | awk -F= '{ sum += $2 } END { print sum + 0 }')
  result $((${total:-0} - ${failed:-0})) "${failed:-0}"
}

in_javascript() {
  local output
  echo "Running $1"
  output=$(cd "$1" && node --test --test-reporter=tap test/ 2>&1) || true
  echo "$output"
  result "$(sed -n 's/^# pass //p' <<< "$output")" "$(sed -n 's/^# fail //p' <<< "$output")"
}

in_go() {
  local output
  echo "Running $1"
  output=$(cd "$1" && go test -count=1 -v ./... 2>&1) || true
  echo "$output"
  result "$(grep -c '^--- PASS' <<< "$output" || true)" "$(grep -c -e '^--- FAIL' -e '^FAIL.*build failed' <<< "$output" || true)"
}

in_python guest-sdk/python guest-sdk/python/tests
in_python plugins/postgres-cluster-python plugins/postgres-cluster-python/tests
in_javascript guest-sdk/javascript
in_javascript plugins/service-per-pod
in_go guest-sdk/go
exit "$status"
