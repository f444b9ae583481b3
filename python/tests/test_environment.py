"""World size and ranks, read from the variables of launchers."""

import json
import os

import pytest

from lcache._client.environment import launched_world

with open(os.path.join(os.path.dirname(__file__), "../../testdata/launchers.json")) as f:
    CASES = json.load(f)["cases"]


@pytest.mark.parametrize("case", CASES, ids=[case["why"] for case in CASES])
def test_launched_world(case):
    assert launched_world(case["env"]) == (case["world"], case["rank"], case["here"])
