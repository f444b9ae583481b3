"""Runs all live checks: LCACHE_BIN=… python python/tests/live"""

import os
import sys

import pytest

sys.exit(pytest.main(["-q", "-rs", os.path.dirname(os.path.abspath(__file__)), *sys.argv[1:]]))
