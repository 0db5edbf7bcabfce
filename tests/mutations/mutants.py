"""Mutants by rule and seed: one expression or statement of a room, changed as a slip of the hand would."""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOMS = {"fleet": "paddock/fleet", "plan": "paddock/plan", "gpu": "paddock/gpu", "operate": "paddock/operate",
         "infra": "infra"}  # fmt: skip
"""The folder of each room. Its unit tests lie in the folder of `tests` that is called like the room."""

_SLIPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change to one file. Its rank by a seed depends on its own function alone: changes elsewhere move none."""

    room: str
    file: str
    line: int
    rule: str
    before: str
    after: str
    place: str
    """Function, what stands there, and which one of the same in that function."""
    span: tuple[int, int]
    """Offsets into the file's bytes."""

    def rank(self, seed: int) -> bytes:
        """Return what mutants are ordered by."""
        return hashlib.sha256(f"{seed}:{self.file}:{self.rule}:{self.place}".encode()).digest()

    def applied(self, source: bytes) -> bytes:
        """Return the file's source with the change."""
        return source[: self.span[0]] + self.after.encode() + source[self.span[1] :]


def chosen(root: Path, room: str, seed: int, count: int) -> list[Mutant]:
    """Return the room's first `count` mutants by this seed, the rules in turn."""
    by_rule: dict[str, list[Mutant]] = {rule: [] for rule in ("comparison", "constant", "boolean", "call", "argument")}
    for path in sorted((root / ROOMS[room]).rglob("*.py")):
        for mutant in mutants(room, path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")):
            by_rule[mutant.rule].append(mutant)
    for ranked in by_rule.values():
        ranked.sort(key=lambda mutant: mutant.rank(seed))
    turns = max(len(ranked) for ranked in by_rule.values())
    in_turn = [ranked[turn] for turn in range(turns) for ranked in by_rule.values() if turn < len(ranked)]
    return in_turn[:count]


def mutants(room: str, file: str, text: str) -> Iterator[Mutant]:
    """Yield every mutant of a file."""
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen: dict[tuple[str, str], int] = {}
    for function, node in _judged(ast.parse(text)):
        for rule, changed in _changes(node):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            span = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            before = ast.unparse(node)
            after = ast.unparse(changed)
            key = f"{function}: {before} -> {after}", rule
            seen[key] = seen.get(key, 0) + 1
            # Brackets keep the change one operand of what stands around it.
            written = after if isinstance(changed, ast.stmt) else f"({after})"
            yield Mutant(room, file, node.lineno, rule, before, written, f"{key[0]} {seen[key]}", span)


def _judged(tree: ast.Module) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    """Yield what runs, with its function: no annotation, docstring, import, pattern or part of a text."""

    def walk(node: ast.AST, function: str) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}"
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "type_params"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.pattern):
                    continue
                if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                    continue
                if isinstance(child, ast.expr | ast.stmt):
                    yield function, child
                yield from walk(child, function)

    return walk(tree, "")


def _changes(node: ast.expr | ast.stmt) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in _SLIPS:
            changed = copy.deepcopy(node)
            changed.ops = [_SLIPS[type(op)]()]
            yield "comparison", changed
        case ast.Constant(value=bool(value)):
            yield "boolean", ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield "constant", ast.Constant(value + 1)
        case ast.BoolOp(op=op, values=values):
            yield "boolean", ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "boolean", operand
        case ast.Expr(value=ast.Call()):
            yield "call", ast.Pass()
        case ast.Call(args=[first, second, *others]) if not any(isinstance(a, ast.Starred) for a in node.args):
            if ast.unparse(first) != ast.unparse(second):
                yield "argument", ast.Call(node.func, [second, first, *others], node.keywords)
