# SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
# shellcheck shell=bash
#
# Finds cargo and checks that it is new enough; runs programs of the workspace.

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

# run_program ROOT PROGRAM ARGUMENT...: builds a program of the workspace in ROOT, unoptimised, and runs it. With --package cargo
# would choose the features that this package alone asks for, and compile again what the tests share with it: the emulator of
# ci/truth is minutes of C.
run_program() {
    local root=$1 program=$2 target
    shift 2
    # Joined by &&: where a caller says `|| status=1`, the shell goes on after a build that failed, and would run an older program.
    cargo build --quiet --manifest-path "$root/Cargo.toml" --workspace --bin "$program" &&
        target=$(cargo metadata --manifest-path "$root/Cargo.toml" --format-version 1 --no-deps |
            sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p') &&
        "$target/debug/$program" "$@"
}

_say_how_to_get_rust() {
    cat >&2 <<EOF
$1; Rust $2 or newer is needed. Either
  - install rustup (https://rustup.rs) and run: rustup toolchain install stable
  - or install Debian's rustc and cargo, where they are new enough (trixie-backports):
      apt-get install --no-install-recommends -t trixie-backports rustc cargo
EOF
}
