"""The count that `make test` ends with: it notices what did not run."""

from collections import Counter

import census

TESTS = """\
def helper(): ...
def test_one(): ...
class TestMore:
    def test_two(self): ...
"""
CODE = '''\
"""A module.

>>> 1 + 1
2
"""
class Thing:
    """Nothing to run."""
    def method(self):
        """
        >>> Thing().method()
        """
'''
NOTEBOOK = '{"cells": [{"cell_type": "code"}, {"cell_type": "markdown"}, {"cell_type": "code"}]}'


def tree(root):
    for name, text in (
        ("lib/tests/test_a.py", TESTS),
        ("lib/weft/plan/b.py", CODE),
        ("notebooks/c.ipynb", NOTEBOOK),
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_it_knows_what_has_been_written(tmp_path):
    assert census.written(tree(tmp_path)) == Counter(
        {
            ("lib/tests/test_a.py", "test_one"): 1,
            ("lib/tests/test_a.py", "test_two"): 1,
            ("lib/weft/plan/b.py", "weft.plan.b"): 1,
            ("lib/weft/plan/b.py", "weft.plan.b.Thing.method"): 1,
            ("notebooks/c.ipynb", "Cell 0"): 1,
            ("notebooks/c.ipynb", "Cell 1"): 1,
        }
    )


def test_it_reads_reports_and_names_what_is_missing(tmp_path):
    wanted = census.written(tree(tmp_path))
    (tmp_path / "lib.xml").write_text(
        '<testsuites><testsuite><testcase file="lib/tests/test_a.py" name="test_one[3]"/>'
        '<testcase file="lib/tests/test_a.py" name="test_two">'
        '<skipped message="needs a browser"/></testcase>'
        '<testcase file="lib/weft/plan/b.py" name="weft.plan.b"/>'
        '<testcase file="notebooks/c.ipynb" name="Cell 0"/></testsuite></testsuites>',
        encoding="utf-8",
    )
    cases = census.ran(tmp_path)
    missing = [
        "lib/weft/plan/b.py: weft.plan.b.Thing.method did not run",
        "notebooks/c.ipynb: Cell 1 did not run",
    ]
    assert census.problems(cases, wanted, strict=False) == missing
    skipped = "lib/tests/test_a.py: test_two was skipped: needs a browser"
    assert census.problems(cases, wanted, strict=True) == [*missing, skipped]


def test_a_missing_gpu_is_no_fault(tmp_path):
    cases = [census.Case("lib/tests/test_a.py", "test_one", "needs a GPU: torch sees none")]
    assert census.problems(cases, Counter(), strict=True) == []


def test_nothing_at_all_is_a_failure(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(census, "ROOT", tmp_path)
    assert census.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == "0 tests ran\n"
