#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `make packages`: the wheel and the Debian package, in target/packages/dist, each tried in a clean root.
# Packing runs twice and must give equal files; the native files are compiled once (REBUILD=1: twice).
# KINDS="deb wheel" leaves out containers, which not every machine can start.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
here=setup/packages made=target/packages
setup/setup.sh packages
# What a build records instead of its own time.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH PATH=$PATH:$HOME/.cargo/bin

say() { echo "packages: $*"; }
crate=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
module=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' python/barewire/__init__.py)
changes=$(sed -n 's/^## \([^ ]*\) (.*/\1/p' CHANGELOG.md | head -n 1)
[ "$crate" = "$module" ] && [ "$module" = "$changes" ] || {
    say "the versions of Cargo.toml ($crate), python/barewire/__init__.py ($module) and CHANGELOG.md ($changes) differ" >&2
    exit 2
}

say "native files"
"$here/natives.sh"
if [ -n "${REBUILD:-}" ]; then
    say "native files again, from nothing"
    rm -rf "$made/first"
    cp -r "$made/native" "$made/first"
    rm -rf "$made/cargo"
    "$here/natives.sh"
    diff -r "$made/first" "$made/native"
fi
git describe --always --dirty --abbrev=12 --exclude='*' >"$made/native/commit"
python3 "$here/sbom.py" barewire-probe barewire-host barewire-broker barewire-provider >"$made/barewire.cdx.json"
# Also of packages that PyPI has only as sources.
"target/tools/packages/bin/pip" wheel -q --require-hashes -r setup/requirements.lock -w "$made/wheels"

say "manual pages"
rm -rf "$made/python" "$made/share"
# shellcheck disable=SC2046 # one word for each package
target/tools/packages/bin/pip install -q --no-index --no-deps --no-compile --find-links "$made/wheels" --target "$made/python" \
    $(sed -n 's/^\([a-z][^ ]*==[^ ]*\).*/\1/p' setup/requirements.lock)
PYTHONPATH=python:$made/python PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -m barewire.cli.manual "$made/share"

say "packing, twice"
for folder in dist again; do
    rm -rf "${made:?}/$folder"
    mkdir "$made/$folder"
    target/tools/packages/bin/hatchling build -t wheel -d "$made/$folder" >/dev/null
    "$here/deb.sh" "$module" "$made/$folder"
done
diff -r "$made/dist" "$made/again"
rm -rf "${made:?}/again"
(cd "$made/dist" && sha256sum ./*)

say "lintian"
lintian --fail-on error "$made"/dist/*.deb
say "clean roots"
"$here/try.sh" "$made/dist" "${KINDS:-deb wheel containers}"
