#!/usr/bin/env bash
# Builds the control plane for tests and `make run`, once per version, into the user's cache.
# Progress goes to stderr; the last line of stdout is the path of the binary. Two at the same time are safe.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

say() { echo "control-plane: $*" >&2; }
die() { say "$*"; exit 1; }

kubernetes=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' go.mod) # v1.34.4
[[ $kubernetes =~ ^v([0-9]+)\.([0-9]+)\. ]] || die "go.mod names no version of k8s.io/kubernetes"
major=${BASH_REMATCH[1]} minor=${BASH_REMATCH[2]}

# What `kubectl version` prints, and what feature gates compare with; upstream's release script sets both packages.
ldflags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  ldflags+=" -X $package.gitVersion=$kubernetes -X $package.gitMajor=$major -X $package.gitMinor=$minor"
  ldflags+=" -X $package.gitCommit= -X $package.gitTreeState=archive" # a module knows no commit
done
# Upstream's tags: without gRPC's tracing the linker can drop unused methods.
flags=(-trimpath -tags "selinux,notest,grpcnotrace" -ldflags "$ldflags")

hash=$({ cat go.mod go.sum main.go; echo "${flags[@]}"; } | sha256sum | cut -c1-12)
directory=${XDG_CACHE_HOME:-$HOME/.cache}/pilothouse/control-plane-$kubernetes-$hash
binary=$directory/control-plane

if [[ -x $binary ]]; then
  say "found Kubernetes $kubernetes, built earlier: $binary"
  echo "$binary"
  exit 0
fi

wanted=$(awk '$1 == "go" { print $2 }' go.mod)
command -v go >/dev/null || die "building Kubernetes $kubernetes needs Go $wanted or newer, and there is no \`go\` on the PATH"

mkdir -p "$directory"
exec 9>"$directory/lock"
flock --nonblock 9 || { say "another build of the same version is running; waiting for it"; flock 9; }
if [[ ! -x $binary ]]; then # the build waited for may have made it
  say "building Kubernetes $kubernetes and etcd with $(go env GOVERSION): some 6 minutes on two cores the first time"
  started=$SECONDS
  CGO_ENABLED=0 go build "${flags[@]}" -o "$binary.partial" . >&2
  mv "$binary.partial" "$binary" # a half-written binary never has the final name
  say "built in $((SECONDS - started)) s ($(du -h "$binary" | cut -f1)): $binary"
fi
echo "$binary"
