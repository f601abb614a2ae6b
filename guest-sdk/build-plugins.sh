#!/usr/bin/env bash
# Builds the plugins in Python, JavaScript or Go: TARGET/languages/NAME.wasm, and what only tests use into TARGET/guests.
# Not into TARGET/plugins, which `make run` serves: some serve the kind of a plugin in Rust, and one or the other runs.
# Usage: guest-sdk/build-plugins.sh python|javascript|go TARGET
set -euo pipefail
language=$1 target=$(realpath -m "$2")
source "$(dirname "${BASH_SOURCE[0]}")/tools.sh"

build_python() {
  (cd "$(dirname "$1")" && PYTHONPATH=$root/guest-sdk/python/src PYTHONDONTWRITEBYTECODE=1 "$python" -m pilothouse build "$(basename "$1")" -o "$component")
}

build_javascript() {
  (cd "$(dirname "$1")" && node "$root/guest-sdk/javascript/build.mjs" "$(basename "$1")" -o "$component")
}

build_go() {
  local name=$1 work
  work=$(mktemp -d)
  (cd "$2" && GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -trimpath -ldflags='-s -w' -o "$work/$name.wasm" .)
  "$target/release/pilothouse-componentize" --out "$work/out" "$work/$name.wasm"
  mv "$work/out/$name.wasm" "$component"
  rm -rf "$work"
}

# A component is also what it was built by.
how=guest-sdk/build-plugins.sh

"${language}_tools"
case $language in
  python)
    sdk=("$how" guest-sdk/python/src guest-sdk/python/requirements.txt)
    component postgres-cluster-python "$(digest "${sdk[@]}" plugins/postgres-cluster-python/postgres_cluster.py plugins/postgres-cluster-python/crd.json)" \
      "$target/languages/postgres-cluster-python.wasm" build_python "$root/plugins/postgres-cluster-python/postgres_cluster.py"
    component probe-python "$(digest "${sdk[@]}" tests/guests/python)" \
      "$target/guests/probe-python.wasm" build_python "$root/tests/guests/python/probe.py"
    component guarding-python "$(digest "${sdk[@]}" tests/guests/python)" \
      "$target/guests/guarding-python.wasm" build_python "$root/tests/guests/python/guarding.py"
    ;;
  javascript)
    sdk=("$how" guest-sdk/javascript/src guest-sdk/javascript/wit guest-sdk/javascript/build.mjs guest-sdk/javascript/package-lock.json)
    component service-per-pod "$(digest "${sdk[@]}" plugins/service-per-pod/service-per-pod.js)" \
      "$target/languages/service-per-pod.wasm" build_javascript "$root/plugins/service-per-pod/service-per-pod.js"
    component probe-javascript "$(digest "${sdk[@]}" tests/guests/javascript)" \
      "$target/guests/probe-javascript.wasm" build_javascript "$root/tests/guests/javascript/probe.js"
    component guarding-javascript "$(digest "${sdk[@]}" tests/guests/javascript)" \
      "$target/guests/guarding-javascript.wasm" build_javascript "$root/tests/guests/javascript/guarding.js"
    ;;
  go)
    sdk=("$how" guest-sdk/go guest-sdk/componentize/src wit/operator.wit)
    component greeting-go "$(digest "${sdk[@]}" plugins/greeting-go)" \
      "$target/languages/greeting-go.wasm" build_go greeting-go "$root/plugins/greeting-go"
    component probe-go "$(digest "${sdk[@]}" tests/guests/go)" \
      "$target/guests/probe-go.wasm" build_go probe-go "$root/tests/guests/go"
    ;;
esac
