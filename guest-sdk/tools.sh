# What the plugins in Python, JavaScript and Go are built and tested with: sourced by the scripts in tests/ and guest-sdk/.
# Tools are installed once into the user's cache, in the versions and with the hashes of the lock files.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/pilothouse

# Files and their names, as one word: what is made of them is right as long as it stays the same.
digest() { (cd "$root" && find "$@" -type f -not -path '*/node_modules/*' -not -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum) | sha256sum | cut -c1-16; }

# Runs a command once at a time over all processes, as several builds may want the same tools.
alone() {
  mkdir -p "$cache"
  (flock 9 && "$@") 9> "$cache/.tools.lock"
}

# Sets $python: an interpreter with componentize-py.
python_tools() {
  local base=${PYTHON:-python3} requirements=guest-sdk/python/requirements.txt
  if ! "$base" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
    echo "python: Python 3.11 or later with its module venv is needed to build plugins in Python (PYTHON names another than python3)" >&2
    return 1
  fi
  local directory
  directory=$cache/python-$(digest "$requirements")-$("$base" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  python=$directory/bin/python
  alone python_install "$base" "$directory" "$root/$requirements"
}

python_install() {
  local base=$1 directory=$2 requirements=$3
  [[ -e $directory/.complete ]] && return
  rm -rf "$directory"
  "$base" -m venv "$directory"
  "$directory/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$requirements"
  touch "$directory/.complete"
}

# Puts the packages of guest-sdk/javascript, and the SDK for the plugins, where Node looks for them.
javascript_tools() {
  if ! node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' 2> /dev/null; then
    echo "javascript: Node 20.19 or later is needed to build plugins in JavaScript" >&2
    return 1
  fi
  local sdk=$root/guest-sdk/javascript directory
  directory=$cache/javascript-$(digest guest-sdk/javascript/package-lock.json)
  alone javascript_install "$directory" "$sdk"
  # An author's own `npm ci` there is as good.
  [[ -d $sdk/node_modules && ! -L $sdk/node_modules ]] || ln -sfn "$directory/node_modules" "$sdk/node_modules"
  local plugin
  for plugin in "$root"/plugins/*/package.json; do
    mkdir -p "$(dirname "$plugin")/node_modules"
    ln -sfn ../../../guest-sdk/javascript "$(dirname "$plugin")/node_modules/pilothouse"
  done
}

javascript_install() {
  local directory=$1 sdk=$2
  [[ -e $directory/.complete ]] && return
  rm -rf "$directory"
  mkdir -p "$directory"
  cp "$sdk/package.json" "$sdk/package-lock.json" "$directory"
  (cd "$directory" && npm ci --silent --no-audit --no-fund)
  touch "$directory/.complete"
}

go_tools() {
  # `go:wasmexport` and libraries for WASI came with 1.24.
  if ! go version 2> /dev/null | grep -qE 'go1\.(2[4-9]|[3-9][0-9])'; then
    echo "go: Go 1.24 or later is needed to build plugins in Go" >&2
    return 1
  fi
}

# component NAME DIGEST OUTPUT COMMAND…: runs COMMAND, which writes $component, unless the cache has what it would write.
component() {
  local name=$1 sources=$2 output=$3
  shift 3
  local kept=$cache/components/$name-$sources.wasm
  if [[ ! -e $kept ]]; then
    mkdir -p "$cache/components"
    # What a build that was interrupted has left.
    find "$cache/components" -name ".$name.*.wasm" -mmin +60 -delete
    component=$cache/components/.$name.$$.wasm
    "$@"
    mv "$component" "$kept"
    # The last three of each: a switch of branches builds nothing again, and 20 MiB each do not pile up.
    find "$cache/components" -name "$name-*.wasm" -printf '%T@ %p\n' | sort -rn | tail -n +4 | cut -d' ' -f2- | xargs -r rm -f
  fi
  mkdir -p "$(dirname "$output")"
  cmp -s "$kept" "$output" || { cp "$kept" "$output.$$" && mv "$output.$$" "$output"; }
  echo "$output: $(($(stat -c %s "$output") >> 20)) MiB"
}
