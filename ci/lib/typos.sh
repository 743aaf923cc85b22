# SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
# shellcheck shell=bash
#
# The spelling checker of PyPI's package `typos`. Debian has none that can read identifiers.

_typos_requirements=$(dirname "${BASH_SOURCE[0]}")/typos.txt

# Prints the virtual environment: one for each version, in the project's cache folder.
_typos_environment() {
    local version
    version=$(sed -n 's/^typos==\([^ ]*\).*/\1/p' "$_typos_requirements")
    echo "${XDG_CACHE_HOME:-$HOME/.cache}/siteseer/typos/$version"
}

# find_typos: prints the path of the program. Fails if it is not installed.
find_typos() {
    local program
    program=$(_typos_environment)/bin/typos
    if [ ! -x "$program" ]; then
        echo "there is no $program: ci/setup installs it from PyPI" >&2
        return 1
    fi
    echo "$program"
}

# install_typos: installs it, unless it is installed. Two may run at once. An interrupted installation is done again.
install_typos() (
    environment=$(_typos_environment)
    mkdir -p "$(dirname "$environment")" || exit
    exec {lock}>"$environment.lock" || exit
    flock "$lock" || exit
    if find_typos >/dev/null 2>&1; then
        exit
    fi
    rm -rf "$environment" && python3 -m venv "$environment" &&
        "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
            --only-binary :all: --require-hashes --requirement "$_typos_requirements"
)
