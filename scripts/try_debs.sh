#!/usr/bin/env bash
# try_debs.sh [ROOT] installs release/*.deb in a bare system of this machine's release and runs debian/tests in it, as autopkgtest
# would. ROOT is made by debootstrap where it is missing, and kept; without ROOT it is temporary. Needs root, as debootstrap does.
set -euo pipefail
cd "$(dirname "$0")/.."
debs=$(find "$PWD/release" -maxdepth 1 -name '*.deb' -not -name '*-dbgsym_*' 2>/dev/null | sort)
[ -n "$debs" ] || { echo "try_debs.sh: release holds no Debian packages; make deb makes them" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || { echo "try_debs.sh: debootstrap and chroot need root" >&2; exit 2; }
[ -n "${TRY_DEBS_MOUNTS:-}" ] || exec env TRY_DEBS_MOUNTS=own unshare --mount --propagation private "$0" "$@"
root=${1:-}
if [ -z "$root" ]; then
    root=$(mktemp -d)
    trap 'umount "$root/proc"; rm -rf "$root"' EXIT
fi

# From the mirror, release and components that this machine's apt has.
. /etc/os-release
index=$(apt-get indextargets --format '$(SITE) $(CODENAME) $(COMPONENT)' 'Identifier: Packages' | awk -v name="$VERSION_CODENAME" '$2 == name')
mirror=$(awk 'NR == 1 { print $1 }' <<< "$index")
components=$(awk '!seen[$3]++ { printf "%s%s", comma, $3; comma = "," }' <<< "$index")
[ -e "$root/etc/debian_version" ] ||
    debootstrap --variant=minbase --components="$components" "$VERSION_CODENAME" "$root" "$mirror" > /dev/null
mount -t proc proc "$root/proc"
cp /etc/resolv.conf "$root/etc/resolv.conf"

in_root() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"; }
rm -rf "$root/try"
mkdir "$root/try"
cp -r debian/tests examples "$root/try"
# shellcheck disable=SC2086 # one word for each file
cp $debs "$root/try"
in_root apt-get update -qq
# shellcheck disable=SC2046
in_root apt-get install -y -qq --no-install-recommends $(for deb in $debs; do echo "/try/$(basename "$deb")"; done) \
    $(sed -n 's/^Depends: //p' debian/tests/control | tr -d ',' | tr ' ' '\n' | grep -v palimpsa) > "$root/try/install.log" 2>&1 ||
    { tail -n 20 "$root/try/install.log" >&2; exit 1; }
for test in $(sed -n 's/^Tests: //p' debian/tests/control); do
    if in_root sh -c "cd /try && exec tests/$test" > "$root/try/$test.log" 2>&1; then echo "passed: $test"
    else
        cat "$root/try/$test.log" >&2
        echo "failed: $test" >&2
        exit 1
    fi
done
