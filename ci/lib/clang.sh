# SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
# shellcheck shell=bash
#
# Which clang compiles BPF programs.

# The versions that are known to do, best first. A plain `clang` comes last: it may be anything.
CLANG_VERSIONS=(22 21 20 19 18 17 16 15 14)

# targets_bpf CLANG: whether this clang can compile for BPF.
targets_bpf() {
    echo 'int x;' | "$1" -target bpf -x c -c - -o /dev/null 2>/dev/null
}

# find_clang: prints the clang to use: $CLANG if it is set, else the newest that is installed. Fails if there is none.
find_clang() {
    local version
    if [ -n "${CLANG:-}" ]; then
        if ! targets_bpf "$CLANG"; then
            echo "CLANG=$CLANG cannot compile for BPF" >&2
            return 1
        fi
        command -v "$CLANG"
        return
    fi
    for version in "${CLANG_VERSIONS[@]/#/clang-}" clang; do
        if command -v "$version" >/dev/null && targets_bpf "$version"; then
            command -v "$version"
            return
        fi
    done
    return 1
}
