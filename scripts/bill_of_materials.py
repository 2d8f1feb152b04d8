#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints the bill of materials of a release in SPDX 2.3: its files, and the libraries that they contain or need.

    scripts/bill_of_materials.py VERSION SECONDS_SINCE_1970 RELEASE_DIRECTORY
"""
import datetime, hashlib, json, pathlib, subprocess, sys

# Debian's package, licence, and what has it inside: static files and the wheel. Debian packages and a build from source need it installed.
LIBRARIES = [
    ("libc6-dev", "glibc", "LGPL-2.1-or-later", ("static",)),
    ("libgomp1", "libgomp", "GPL-3.0-or-later WITH GCC-exception-3.1", ("static", "wheel")),
    ("libjansson-dev", "jansson", "MIT", ("static", "wheel")),
    ("libutf8proc-dev", "utf8proc", "MIT", ("static", "wheel")),
    ("libonig-dev", "oniguruma", "BSD-2-Clause", ("static", "wheel")),
    ("libmicrohttpd-dev", "libmicrohttpd", "LGPL-2.1-or-later", ("static",)),
    ("libdnnl-dev", "oneDNN", "Apache-2.0", ("wheel",)),
    ("libcairo2-dev", "cairo", "LGPL-2.1-only OR MPL-1.1", ()),
    ("libopenmpi-dev", "Open MPI", "BSD-3-Clause", ()),
]


def version_of(package):
    done = subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else "NOASSERTION"


def kind_of(file):
    return "wheel" if file.suffix == ".whl" else "static" if file.name.endswith("-linux") else "other"


def main():
    version, seconds, folder = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
    files = sorted(f for f in folder.iterdir() if f.is_file() and not f.name.endswith(".spdx.json") and not f.name.startswith("SHA256SUMS"))
    digests = {f: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
    package = lambda ident, name, number, licence: {
        "SPDXID": f"SPDXRef-{ident}", "name": name, "versionInfo": number, "licenseDeclared": licence, "licenseConcluded": licence,
        "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "copyrightText": "NOASSERTION"}
    packages, relations = [], []
    for i, file in enumerate(files):
        packages.append(package(f"File-{i}", file.name, version, "MIT") | {
            "packageFileName": file.name, "checksums": [{"algorithm": "SHA256", "checksumValue": digests[file]}]})
        relations.append(("SPDXRef-DOCUMENT", "DESCRIBES", f"SPDXRef-File-{i}"))
    for debian, name, licence, inside in LIBRARIES:
        ident = name.replace(" ", "-")
        packages.append(package(ident, name, version_of(debian), licence))
        for i, file in enumerate(files):
            if kind_of(file) in inside:
                relations.append((f"SPDXRef-File-{i}", "CONTAINS", f"SPDXRef-{ident}"))
            elif kind_of(file) == "other" and file.suffix in (".deb", ".gz"):
                relations.append((f"SPDXRef-File-{i}", "DEPENDS_ON", f"SPDXRef-{ident}"))
    every = hashlib.sha256("".join(digests.values()).encode()).hexdigest()
    print(json.dumps({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"palimpsa-{version}",
        "documentNamespace": f"urn:palimpsa:{version}:{every[:32]}",
        "creationInfo": {"created": datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                         "creators": ["Tool: palimpsa-bill-of-materials"]},
        "packages": packages,
        "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b} for a, kind, b in relations],
    }, indent=1))


main()
