#!/usr/bin/env bash
# licences.sh PACKAGE... prints the licences of libraries that a static file or a wheel has inside, as Debian's packages have them.
set -euo pipefail
echo "Licences of the libraries inside, as Debian's packages have them."
for package in "$@"; do
    printf '\n======== %s\n\n' "$package"
    cat "/usr/share/doc/$package/copyright"
done
