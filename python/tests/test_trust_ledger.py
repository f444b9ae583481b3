"""The table that make test-faults writes into docs/trust.md."""

import importlib.machinery
import importlib.util
import pathlib
import re

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "trust-ledger"
ledger = importlib.util.module_from_spec(importlib.util.spec_from_loader("ledger", importlib.machinery.SourceFileLoader("ledger", str(SCRIPT))))
ledger.__spec__.loader.exec_module(ledger)

PAGE = f"# Title\n\n{ledger.BEGIN}{ledger.END}\nrest\n"


def test_rows():
    """A first run adds a row; a second replaces it, and adds its counts to the total. Other rows and the text around them stay."""
    page = ledger.updated(PAGE, "kills", 3700, "make test-faults PARTS=kills KILLS=170", {"kills": 765}, "abc", "2026-11-25")
    page = ledger.updated(page, "clones", 60, "make test-faults PARTS=clones CLONES=10000", {"crash clones": 10000, "power cuts while packages fill": 500}, "abc", "2026-11-25")
    page = ledger.updated(page, "kills", 5, "make test-faults PARTS=kills KILLS=2", {"kills": 9}, "def", "2026-11-26")
    assert page.startswith("# Title\n\n") and page.endswith("\nrest\n") and page.count("| kills |") == 1
    assert "| kills | 2026-11-26 | def | 0:00:05 | 9 kills | 774 kills | `make test-faults PARTS=kills KILLS=2` |\n" in page
    page = ledger.updated(page, "clones", 60, "make", {"crash clones": 1, "power cuts while packages fill": 1}, "abc", "2026-11-26")
    assert "| 10,001 crash clones · 501 power cuts while packages fill | `make` |" in page
    assert page.index("| clones |") < page.index("| kills |")


def test_page():
    """The page has the marks between which the table is written, and each row names a part of scripts/test-faults."""
    page, script = ledger.PAGE.read_text(), SCRIPT.with_name("test-faults").read_text()
    assert page.count(ledger.BEGIN) == page.count(ledger.END) == 1
    for found in ledger.ROW.finditer(page.split(ledger.BEGIN)[1].split(ledger.END)[0]):
        if found["part"] != "part":
            assert re.search(rf"^{found['part']}\(\)", script, re.M), found["part"]
