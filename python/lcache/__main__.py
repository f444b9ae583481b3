"""python -m lcache: the program lcache, with the same arguments, in place of this process."""

import os
import sys

from . import FileNotFoundError, program


def main() -> None:
    try:
        path = program()
    except FileNotFoundError as e:
        sys.exit(f"lcache: {e}")
    try:
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as e:
        sys.exit(f"lcache: start {path}: {e.strerror}; set LCACHE_BIN to the lcache program")


if __name__ == "__main__":
    main()
