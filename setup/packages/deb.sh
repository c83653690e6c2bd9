#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Packs a wheel and the Python packages it needs for Debian 12: deb.sh VERSION FOLDER; both the wheel and the result are
# in the folder. The command has a Python environment of its own, /usr/lib/barewire, which users' programs do not see.
set -euo pipefail
version=$1-1 dist=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
here=setup/packages maintainer="The Barewire developers <developers@barewire.example>"
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
umask 022
home=$tree/usr/lib/barewire packages=usr/lib/barewire/lib/python3.11/site-packages
providers=$tree/usr/lib/x86_64-linux-gnu/libfabric doc=$tree/usr/share/doc/barewire
mkdir -p "$home/bin" "$tree/usr/bin" "$(dirname "$providers")" "$doc" "$tree/DEBIAN"

# A wheel from a folder and not by its path, which pip would write down.
target/tools/packages/bin/pip install -q --no-index --no-deps --no-compile --find-links "$dist" --find-links target/packages/wheels \
    --target "$tree/$packages" "barewire==$1" $(sed -n 's/^\([a-z][^ ]*==[^ ]*\).*/\1/p' setup/requirements.lock)
# The wheel's manual pages are written anew below, zipped as Debian wants them.
rm -r "$tree/$packages/bin" "$tree/$packages/share"
# A sixth of everything. Of these numpy.testing imports one.
find "$tree/$packages" -type d -name tests ! -path '*/numpy/_core/tests' -prune -exec rm -r {} +
(
    cd "$tree"
    # Modules compiled here: nobody may write them later. Their sources are not looked at again.
    PYTHONHASHSEED=0 /usr/bin/python3 -m compileall -q --invalidation-mode unchecked-hash -s . -p / "$packages"
)
printf '%s\n' "home = /usr/bin" "include-system-site-packages = false" >"$home/pyvenv.cfg"
ln -s /usr/bin/python3.11 "$home/bin/python3"
printf '%s\n' "#!/usr/lib/barewire/bin/python3" "from barewire.cli import main" "" "main()" >"$home/bin/barewire"
chmod 755 "$home/bin/barewire"
ln -s ../lib/barewire/bin/barewire "$tree/usr/bin/barewire"

# The folder in which Debian's libfabric looks for providers, and the programs that are commands.
native=$tree/$packages/barewire/native
mv "$native/libfabric" "$providers"
chmod 644 "$providers"/*
ln -s /usr/lib/x86_64-linux-gnu/libfabric "$native/libfabric"
for program in barewire-probe barewire-broker; do
    mv "$native/$program" "$tree/usr/bin"
    ln -s "/usr/bin/$program" "$native/$program"
done

# Wireshark's folder of global plugins, whatever its version.
install -D -m 644 "$tree/$packages/barewire/account/barewire.lua" "$tree/usr/lib/x86_64-linux-gnu/wireshark/plugins/barewire.lua"

install -D -m 644 "$here/debian/broker.toml" "$tree/etc/barewire/broker.toml"
install -D -m 644 crates/broker/systemd/barewire-broker.service "$tree/lib/systemd/system/barewire-broker.service"
install -D -m 644 "$here/debian/barewire.sysusers" "$tree/usr/lib/sysusers.d/barewire.conf"
install -D -m 644 "$here/debian/lintian-overrides" "$tree/usr/share/lintian/overrides/barewire"
install -m 644 "$here/debian/copyright" crates/broker/broker.toml target/packages/barewire.cdx.json "$doc"
python3 "$here/changelog.py" "${version##*-}" "$maintainer" | gzip -9n >"$doc/changelog.Debian.gz"
gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
PYTHONPATH=$tree/$packages PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 "$here/pages.py" "$1" "$tree"

# In KiB as Debian's own tools count them, whatever the file system.
size=$(find "$tree" -printf '%y %s\n' | awk '{ sum += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print sum }')
echo /etc/barewire/broker.toml >"$tree/DEBIAN/conffiles"
install -m 755 "$here"/debian/{postinst,prerm,postrm} "$tree/DEBIAN"
sed -e "s/@VERSION@/$version/" -e "s/@MAINTAINER@/$maintainer/" -e "s/@INSTALLED_KIB@/$size/" \
    "$here/debian/control.in" >"$tree/DEBIAN/control"
(cd "$tree" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
dpkg-deb --root-owner-group -Zxz -z3 --threads-max=2 --build "$tree" "$dist/barewire_${version}_amd64.deb" >/dev/null
