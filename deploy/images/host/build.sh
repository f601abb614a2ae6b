#!/usr/bin/env bash
# Builds the host's image without pulling anything: one static binary, as an OCI archive.
# Usage: deploy/images/host/build.sh TARGET [ARCHIVE]
#   writes TARGET/image/context/pilothouse, and ARCHIVE (TARGET/image/pilothouse.tar)
# PROFILE=release takes minutes less than what is shipped, `dist`, where the program has been built before.
# `podman load -i`, `ctr -n k8s.io images import` and `skopeo copy oci-archive:` take the archive.
set -euo pipefail
target=$(realpath "$1")
archive=${2:-$target/image/pilothouse.tar}
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

profile=${PROFILE:-dist}
packages=(--package pilothouse)
[[ $profile != release ]] || packages+=(--package pilothouse-harness --package pilothouse-componentize)

# Linking alone knows whether the C library is static. So the dependencies of `make build` are taken as they are (what
# Cargo calls the build directory is shared, and the same packages are named, for the same features of dependencies),
# only our own crates are compiled again, and the result goes to a place of its own: TARGET/release stays what it is.
mkdir -p "$target/image/context"
# Set where a test that cargo runs calls this; the build script of `ring` looks at them, and it and all above it would be
# compiled anew.
unset "${!CARGO_PKG_@}" "${!CARGO_MANIFEST_@}"
CARGO_TARGET_DIR=$target/image/cargo CARGO_BUILD_BUILD_DIR=$target \
  RUSTC_WORKSPACE_WRAPPER=$PWD/deploy/images/host/static-rustc.sh \
  cargo build --profile "$profile" --locked --bins "${packages[@]}"
ln -f "$target/image/cargo/$profile/pilothouse" "$target/image/context/pilothouse"
if readelf --program-headers "$target/image/context/pilothouse" | grep -q INTERP; then
  echo "$target/image/context/pilothouse is not static: it asks for an interpreter" >&2
  exit 1
fi
version=$("$target/image/context/pilothouse" --version | awk '{ print $2 }')
# The whole name: it is under this one that kubelet asks for the image `pilothouse` of deploy/base.
name=docker.io/library/pilothouse:$version

if ! command -v buildah >/dev/null; then
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "buildah is not on the PATH: install it first" >&2
    exit 2
  fi
  echo "==> installing buildah" >&2
  apt-get install -y -q buildah >&2 || { apt-get update -q >&2 && apt-get install -y -q buildah >&2; }
fi

# Layers and containers live in a directory of this run alone: nothing of the machine's own images is seen or touched.
store=$(mktemp -d)
trap 'rm -rf "$store"' EXIT
export BUILDAH_ISOLATION=chroot
buildah=(buildah --storage-driver vfs --root "$store/root" --runroot "$store/run")
"${buildah[@]}" bud --pull=never --timestamp 0 --label "org.opencontainers.image.version=$version" \
  --file deploy/images/host/Dockerfile --tag "$name" "$target/image/context" >&2
rm -f "$archive"
"${buildah[@]}" push --quiet "$name" "oci-archive:$archive:$name" >&2
echo "$archive"
