"""The maker of mutants: what it changes, what it leaves, and that a seed names the same ones again."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.mutations.mutants import chosen, mutants

SOURCE = '''"""Words: a == b."""
def limit(count: int = 3) -> bool:
    """Return not this."""
    log("é", count)
    return count < 8 and not f"{count == 1}"
'''


def test_each_rule_changes_what_runs_and_no_words() -> None:
    changes = {(m.rule, m.before, m.after) for m in mutants("plan", "limit.py", SOURCE)}
    assert {(rule, before, after) for rule, before, after in changes if rule != "constant"} == {
        ("comparison", "count < 8", "(count <= 8)"),
        ("boolean", "count < 8 and (not f'{count == 1}')", "(count < 8 or not f'{count == 1}')"),
        ("boolean", "not f'{count == 1}'", "(f'{count == 1}')"),
        ("call", "log('é', count)", "pass"),
        ("argument", "log('é', count)", "(log(count, 'é'))"),
    }
    assert {before for rule, before, _ in changes if rule == "constant"} == {"3", "8"}
    (small,) = (m for m in mutants("plan", "limit.py", SOURCE) if m.rule == "comparison")
    assert small.applied(SOURCE.encode()).decode() == SOURCE.replace("count < 8", "(count <= 8)")


def test_a_seed_names_the_same_mutants_again(root: Path) -> None:
    first = chosen(root, "infra", 1, 8)
    assert len({(m.file, m.span) for m in first}) == 8
    assert first == chosen(root, "infra", 1, 8) != chosen(root, "infra", 2, 8)
    for mutant in first:
        source = (root / mutant.file).read_bytes()
        assert ast.dump(ast.parse(mutant.applied(source))) != ast.dump(ast.parse(source))
