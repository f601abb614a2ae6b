#!/usr/bin/env bash
# Builds the operators that the benchmark compares the host with, once per version of their sources, into the user's
# cache. Progress goes to stderr; the last line of stdout is the directory of the binaries. Two at once are safe.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

say() { echo "peers: $*" >&2; }
die() { say "$*"; exit 1; }

for tool in go cargo; do
  command -v "$tool" >/dev/null || die "building the peers needs \`$tool\`, which is not on the PATH"
done
hash=$({ git ls-files --cached --others --exclude-standard . | sort | xargs sha256sum; go env GOVERSION; rustc --version; } |
  sha256sum | cut -c1-12)
directory=${XDG_CACHE_HOME:-$HOME/.cache}/pilothouse/peers-$hash

mkdir -p "$directory"
exec 9>"$directory/lock"
flock --nonblock 9 || { say "another build of the same version is running; waiting for it"; flock 9; }

if [[ ! -x $directory/podreplica-controller-runtime ]]; then
  say "building the operator on controller-runtime"
  (cd controller-runtime && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$directory/partial" . >&2)
  mv "$directory/partial" "$directory/podreplica-controller-runtime"
fi
if [[ ! -x $directory/podreplica-kube-rs ]]; then
  say "building the operator on kube-rs: some 5 minutes on two cores the first time"
  cargo build --release --locked --manifest-path kube-rs/Cargo.toml --target-dir "$directory/target" >&2
  mv "$directory/target/release/podreplica-kube-rs" "$directory/podreplica-kube-rs"
  rm -r "$directory/target"
fi
echo "$directory"
