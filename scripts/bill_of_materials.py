#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints the bill of materials of a release in SPDX 2.3: its files, and the libraries that they contain or need.

    scripts/bill_of_materials.py VERSION SECONDS_SINCE_1970 RELEASE_DIRECTORY
"""
import datetime, hashlib, json, pathlib, re, subprocess, sys

# Debian's package to build with and what its library's package begins with; name, licence, and the kinds of file that have it inside.
LIBRARIES = [
    ("emscripten", "emscripten", "C library of Emscripten", "MIT", ("site",)),
    ("libc6-dev", "libc6", "glibc", "LGPL-2.1-or-later", ("static",)),
    ("libgomp1", "libgomp", "libgomp", "GPL-3.0-or-later WITH GCC-exception-3.1", ("static", "wheel")),
    ("libjansson-dev", "libjansson", "jansson", "MIT", ("static", "wheel", "site")),
    ("libutf8proc-dev", "libutf8proc", "utf8proc", "MIT", ("static", "wheel", "site")),
    ("libonig-dev", "libonig", "oniguruma", "BSD-2-Clause", ("static", "wheel", "site")),
    ("libmicrohttpd-dev", "libmicrohttpd", "libmicrohttpd", "LGPL-2.1-or-later", ("static",)),
    ("libdnnl-dev", "libdnnl", "oneDNN", "Apache-2.0", ("wheel",)),
    ("libcairo2-dev", "libcairo", "cairo", "LGPL-2.1-only OR MPL-1.1", ()),
    ("libopenmpi-dev", "libopenmpi", "Open MPI", "BSD-3-Clause", ()),
    ("python3-numpy", "python3-numpy", "numpy", "BSD-3-Clause", ()),
    ("python3-cffi", "python3-cffi", "cffi", "MIT", ()),
]


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def kind_of(file):
    if file.name.endswith("-site.tar.gz"):
        return "site"
    return {".whl": "wheel", ".deb": "debian", ".gz": "source"}.get(file.suffix) or ("static" if file.name.endswith("-linux") else "other")


def needs(file, library, name):
    """Whether the library must be installed where the file is used, or built."""
    if kind_of(file) == "debian":
        return any(word.startswith(library) for word in re.split(r"[,| ]+", output("dpkg-deb", "-f", str(file), "Depends")))
    return kind_of(file) == "source" and name != "C library of Emscripten" or kind_of(file) == "wheel" and name in ("numpy", "cffi")


def package(ident, name, number, licence):
    return {"SPDXID": f"SPDXRef-{ident}", "name": name, "versionInfo": number, "licenseDeclared": licence, "licenseConcluded": licence,
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "copyrightText": "NOASSERTION"}


def main():
    version, seconds, folder = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
    files = sorted(f for f in folder.iterdir() if f.is_file() and not f.name.endswith(".spdx.json") and not f.name.startswith("SHA256SUMS"))
    digests = {f: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
    packages, relations = [], []
    for i, file in enumerate(files):
        packages.append(package(f"File-{i}", file.name, version, "MIT") | {
            "packageFileName": file.name, "checksums": [{"algorithm": "SHA256", "checksumValue": digests[file]}]})
        relations.append(("SPDXRef-DOCUMENT", "DESCRIBES", f"SPDXRef-File-{i}"))
    for debian, library, name, licence, inside in LIBRARIES:
        ident, number = name.replace(" ", "-"), output("dpkg-query", "-W", "-f=${Version}\n", debian).split("\n")[0]
        entry = package(ident, name, number or "NOASSERTION", licence)
        if number:
            entry["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": f"pkg:deb/debian/{debian}@{number}"}]
        packages.append(entry)
        for i, file in enumerate(files):
            if kind_of(file) in inside:
                relations.append((f"SPDXRef-File-{i}", "CONTAINS", f"SPDXRef-{ident}"))
            elif needs(file, library, name):
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
