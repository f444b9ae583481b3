"""A copy of this machine to install packages in: an overlay over its root directory, gone afterwards. Needs root."""

import os
import subprocess

from conftest import run

HIDDEN = ("/usr/local/go",)  # Go is not installed there


class Machine:
    def __init__(self, folder):
        self.folder, self.root = folder, folder / "root"

    def __enter__(self):
        for name in ("root", "upper", "work"):
            (self.folder / name).mkdir(parents=True)
        run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={self.folder}/upper,workdir={self.folder}/work", self.root)
        try:
            for place in ("proc", "dev"):
                run("mount", "--rbind", f"/{place}", self.root / place)
                run("mount", "--make-rslave", self.root / place)
            for place in HIDDEN:
                if os.path.isdir(place):
                    (self.folder / "empty").mkdir(exist_ok=True)
                    run("mount", "--bind", self.folder / "empty", f"{self.root}{place}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # A process of the test may still be leaving.
        subprocess.run(["umount", "--recursive", "--lazy", self.root], check=False)

    def run(self, *command, env, **options):
        return run("chroot", self.root, *command, env=env, **options)

    def without_devices(self):
        """Takes /proc and /dev of this machine away: a container has its own."""
        for place in ("proc", "dev"):
            run("umount", "--recursive", "--lazy", self.root / place)

    def mount(self, folder, inside):
        """Shows a folder of this machine at a path inside. A file system of its own: an overlay is none for caches."""
        (self.root / inside.lstrip("/")).mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", folder, f"{self.root}{inside}")

    def changed(self):
        """The paths that differ from the machine's, without folders. Removed ones are devices in an overlay, and so are in the list."""
        upper = self.folder / "upper"
        return {"/" + str(path.relative_to(upper)) for path in upper.rglob("*") if not path.is_dir() or path.is_symlink()}
