#!/bin/sh
# As RUSTC_WORKSPACE_WRAPPER: rustc, and the binary `pilothouse` is linked statically and without the names of functions.
set -eu
case " $* " in
*" --crate-name pilothouse "*" --crate-type bin "*)
  set -- "$@" -C target-feature=+crt-static -C strip=symbols
  ;;
esac
exec "$@"
