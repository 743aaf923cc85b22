# SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
# shellcheck shell=bash
#
# Finds cargo and checks that it is new enough.

# require_cargo ROOT: succeeds if the cargo in PATH (or rustup's usual place, which is then added to PATH) can build the
# workspace in ROOT; else says what to do and fails.
require_cargo() {
    local root=$1 wanted have
    wanted=$(sed -n 's/^rust-version *= *"\(.*\)".*/\1/p' "$root/Cargo.toml")
    if ! command -v cargo >/dev/null && [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
        PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
        export PATH
    fi
    if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then
        _say_how_to_get_rust "there is no Rust toolchain here" "$wanted"
        return 1
    fi
    have=$(rustc --version | cut -d' ' -f2)
    have=${have%%-*}
    if [ "$(printf '%s\n%s\n' "$wanted" "$have" | sort -V | head -n1)" != "$wanted" ]; then
        _say_how_to_get_rust "the Rust toolchain here is $have" "$wanted"
        return 1
    fi
}

_say_how_to_get_rust() {
    cat >&2 <<EOF
$1; Rust $2 or newer is needed. Either
  - install rustup (https://rustup.rs) and run: rustup toolchain install stable
  - or install Debian's rustc and cargo, where they are new enough (trixie-backports):
      apt-get install --no-install-recommends -t trixie-backports rustc cargo
EOF
}
