"""Lists the modules that a built program contains, with their licences: as an SBOM (CycloneDX 1.6) and as THIRD_PARTY.md with all texts.

The list comes from the program itself, and the texts from the modules that it was built from. A module whose licence is not recognized ends the build.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import uuid
from typing import Any, NamedTuple

import program_build

# A licence, and words that only its text has. White space is one blank.
_LICENCES = {
    "Apache-2.0": r"Apache License,? Version 2\.0",
    "MIT": r"Permission is hereby granted, free of charge, to any person obtaining a copy of this software",
    "BSD-3-Clause": r"Redistribution and use in source and binary forms.*Neither the name",
    "BSD-2-Clause": r"Redistribution and use in source and binary forms(?!.*Neither the name)",
    "MPL-2.0": r"Mozilla Public License,? [Vv]ersion 2\.0",
    "ISC": r"Permission to use, copy, modify, and(?:/or)? distribute this software for any purpose with or without fee",
    "OFL-1.1": r"SIL OPEN FONT LICENSE Version 1\.1",
    "FTL": r"The FreeType Project LICENSE|FreeType License",
    "CC0-1.0": r"CC0 1\.0 Universal",
    "CC-BY-4.0": r"Creative Commons Attribution 4\.0 International",
}
# What the program has from other registries, copied into this repository: name, version, and folder with the licence.
_COPIED = {"uplot": ("1.6.32", "cmd/lcache/internal/monitor/uplot")}
_NAMES = re.compile(r"(LICEN[CS]E|COPYING|NOTICE|UNLICENSE|PATENTS|AUTHORS-LICENSE)([-._][^.]*)?(\.txt|\.md)?", re.I)


class Module(NamedTuple):
    """A module in the program. Its files are (name, text) of licences and notices."""

    path: str
    version: str
    sum: str
    licences: list[str]
    files: list[tuple[str, str]]


def modules(program: str) -> list[Module]:
    """The modules that the program contains, and Go's own library as the module std."""
    go, folder = str(program_build.go()), program_build.sources()
    said = subprocess.run([go, "version", "-m", "-json", program], capture_output=True, text=True, check=True).stdout
    info = json.loads(said)
    if isinstance(info, list):
        (info,) = info
    deps = {dep["Path"]: dep.get("Replace") or dep for dep in info["Deps"]}
    listed = subprocess.run(
        [go, "list", "-m", "-json", *sorted(deps)], cwd=folder, env=program_build.environment("amd64"), capture_output=True, text=True, check=True
    ).stdout
    where, decoder = {}, json.JSONDecoder()
    while listed.strip():
        module, end = decoder.raw_decode(listed.lstrip())
        listed = listed.lstrip()[end:]
        where[module["Path"]] = (module.get("Replace") or module)["Dir"]
    root = subprocess.run([go, "env", "GOROOT"], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
    found = [_module("std", info["GoVersion"][len("go") :], "", root)]
    found += [_module(path, dep["Version"], dep.get("Sum", ""), where[path]) for path, dep in sorted(deps.items())]
    return found + [_module(name, version, "", os.path.join(str(folder), at)) for name, (version, at) in _COPIED.items()]


def _module(path: str, version: str, checksum: str, folder: str) -> Module:
    # Fonts and copied packages have licences of their own in folders below.
    below = [(folder, name) for name in sorted(os.listdir(folder))]
    if path != "std":
        below = [(at, name) for at, _, names in sorted(os.walk(folder)) for name in sorted(names) if "testdata" not in at and "/." not in at]
    files = []
    for at, name in below:
        whole = os.path.join(at, name)
        if _NAMES.fullmatch(name) and os.path.isfile(whole):
            with open(whole, encoding="utf-8", errors="replace") as f:
                files.append((os.path.relpath(whole, folder), f.read().replace("\r\n", "\n").strip() + "\n"))
    licences = sorted({licence for _, text in files for licence in _licences(text)})
    if not licences and path == "std":
        licences = ["BSD-3-Clause"]  # Go from PyPI lacks the text
    if not licences:
        raise SystemExit(f"build lcache: no known licence in {folder}, of module {path}: add its words to {os.path.basename(__file__)}")
    return Module(path, version, checksum, licences, files)


def _licences(text: str) -> list[str]:
    words = re.sub(r"[\s*#>/]+", " ", text)
    return [name for name, pattern in _LICENCES.items() if re.search(pattern, words, re.S)]


def sbom(program: str, of: program_build.Facts) -> str:
    """The list as CycloneDX JSON. It is the same for each build of a commit: its serial number is made from its content, and its time is the commit's."""
    components: list[Any] = []
    for module in modules(program):
        purl = f"pkg:{'npm' if module.path in _COPIED else 'golang'}/{module.path}@{module.version}"
        components.append(
            {
                "bom-ref": purl,
                "type": "library",
                "name": module.path,
                "version": module.version,
                "purl": purl,
                "licenses": [{"license": {"id": licence}} for licence in module.licences],
                **({"properties": [{"name": "go:sum", "value": module.sum}]} if module.sum else {}),
            }
        )
    this = {"bom-ref": f"lcache@{of.version}", "type": "application", "name": "lcache", "version": of.version, "purl": f"pkg:pypi/lcache@{of.version}"}
    if of.commit:
        this["properties"] = [{"name": "git:commit", "value": of.commit}]  # type: ignore[assignment]
    content: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(of.time)), "component": this},
        "components": components,
        "dependencies": [{"ref": this["bom-ref"], "dependsOn": [component["bom-ref"] for component in components]}],
    }
    content["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))}"
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def third_party(programs: list[str]) -> str:
    """THIRD_PARTY.md, of the programs of all architectures: each module with its licence, then each text once, with the modules that it is of."""
    found = list({module.path: module for program in programs for module in modules(program)}.values())
    found.sort(key=lambda module: (module.path != "std", module.path))
    if not found[0].files:
        raise SystemExit("dist: this Go has no LICENSE, which THIRD_PARTY.md must contain: use Go from https://go.dev/dl")
    rows = [f"| {m.path if m.path != 'std' else 'Go standard library'} | {m.version} | {', '.join(m.licences)} |" for m in found]
    of_text: dict[str, list[str]] = {}
    for m in found:
        for name, text in m.files:
            of_text.setdefault(text, []).append(f"{m.path}/{name}")
    texts = [f"\n## {', '.join(names)}\n\n```text\n{text}```\n" for text, names in of_text.items()]
    return (
        "# Third-party software\n\nThe program `lcache` contains these Go modules, and uPlot for its page. The Python package contains none, and needs none."
        " `make dist` writes this file from the program.\n\n| module | version | licences |\n|---|---|---|\n" + "\n".join(rows) + "\n" + "".join(texts)
    )
