"""Measure the shape of the code: one row a folder, and every place that is past a limit.

    python scripts/shape.py                     src/curricle and scripts; exit status 1 if anything is past a limit
    python scripts/shape.py --report            the same table, exit status 0
    python scripts/shape.py tests benchmarks    other folders

The measures, all read from the syntax tree:

- files: the `.py` files that stand directly in the folder.
- lines: the lines of these files, with blank lines and comments. Limit: 500 a file.
- functions: every `def`, also methods and nested functions; not lambdas.
- longest: the lines of the longest function, from its `def` to its end, with its docstring. Limit: 60.
- parameters: the most parameters of a function. `self` and `cls` do not count; `*args` and `**kwargs` count as one
  each. Limit: 8.
- kernels: functions that numba or Triton compile, and the functions inside them: by their decorator (see
  `KERNEL_DECORATORS`), or by a call of it in the same file, `sum_lanes = intrinsic(_sum_lanes)`. They have no limit of
  lines or parameters, and they do not count in `longest` and `parameters`. The column says how many there are.
- packed: statements that make several assignments in one line, also in kernels. These are packed:
    - `a, b = x, y` and `self.a, self.b = x, y`
    - `a, b = (x, y) if c else (z, w)`
    - `a, b = (f(i) for i in (x, y))` and the same with a list comprehension
    - `f(a := x)`: a walrus anywhere but in the condition of an `if`, a `while`, an `assert` or a comprehension
  Unpacking the result of a call, `a, b = f()`, is not packed, and neither is a swap, `a, b = b, a`. Two statements
  joined by `;` are refused by ruff (E702). The table shows packed statements per 1,000 lines.
  Limit: 6 per 1,000 lines over everything measured, and over each top folder with its subfolders.
- chained: conditional expressions that stand directly inside another, `a if x else b if y else c`. Limit: none at all.
- crowded: comprehensions with over three conditions. The operands of `and` and `or` count as a condition each.
  Limit: none at all.
- Any: how often the name `Any` is used, imports aside. No limit.
- modules: the files of the folder without `__init__.py`. Limit: 12.
"""

import argparse
import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 8
MAX_MODULES = 12
MAX_PACKED_PER_1000 = 6.0

KERNEL_DECORATORS = {"kernel", "njit", "jit", "triton.jit", "numba.njit", "numba.jit", "intrinsic"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(frozen=True)
class FunctionShape:
    """The size of one function."""

    name: str
    line: int
    lines: int
    parameters: int
    is_kernel: bool


@dataclass
class FileShape:
    """What is measured in one file. The lists hold line numbers."""

    path: Path
    lines: int
    functions: list[FunctionShape] = field(default_factory=list)
    packed: list[int] = field(default_factory=list)
    chained: list[int] = field(default_factory=list)
    crowded: list[int] = field(default_factory=list)
    anys: int = 0


@dataclass(frozen=True)
class Offence:
    """One place that is past a limit."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        """Write the place so that editors can jump to it."""
        return f"{self.path}:{self.line}: {self.message}"


def measure_file(path: Path) -> FileShape:
    """Measure one file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, filename=str(path))
    shape = FileShape(path, lines=len(text.splitlines()))
    shape.functions.extend(measure_functions(tree, decorated_by_call(tree)))
    tested = set(nodes_in_conditions(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.NamedExpr) and is_packed(node, tested):
            shape.packed.append(node.lineno)
        elif isinstance(node, ast.IfExp) and is_chained(node):
            shape.chained.append(node.lineno)
        elif isinstance(node, Comprehension) and count_conditions(node) > 3:
            shape.crowded.append(node.lineno)
        elif is_any(node):
            shape.anys += 1
    shape.packed.sort()
    return shape


def decorated_by_call(tree: ast.AST) -> set[str]:
    """Return the names of the functions that are passed to a kernel decorator."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in KERNEL_DECORATORS:
            names.update(argument.id for argument in node.args if isinstance(argument, ast.Name))
    return names


def measure_functions(
    node: ast.AST, kernels: set[str], in_class: bool = False, in_kernel: bool = False
) -> Iterator[FunctionShape]:
    """Measure all functions under a node, also the nested ones; `kernels` are known to be compiled by their names."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            kernel = in_kernel or has_kernel_decorator(child) or child.name in kernels
            yield FunctionShape(
                name=child.name,
                line=child.lineno,
                lines=(child.end_lineno or child.lineno) - child.lineno + 1,
                parameters=count_parameters(child, in_class),
                is_kernel=kernel,
            )
            yield from measure_functions(child, kernels, in_class=False, in_kernel=kernel)
        else:
            inside_class = isinstance(child, ast.ClassDef)
            yield from measure_functions(child, kernels, inside_class, in_kernel)


def decorator_names(function: Function) -> set[str]:
    """Return the decorators' names, without the arguments of those that are called."""
    names = set()
    for decorator in function.decorator_list:
        named = decorator.func if isinstance(decorator, ast.Call) else decorator
        names.add(ast.unparse(named))
    return names


def has_kernel_decorator(function: Function) -> bool:
    """Whether numba or Triton compile the function."""
    return not KERNEL_DECORATORS.isdisjoint(decorator_names(function))


def count_parameters(function: Function, in_class: bool) -> int:
    """Count the parameters of a function, without `self` and `cls`."""
    arguments = function.args
    count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
    if arguments.vararg is not None:
        count += 1
    if arguments.kwarg is not None:
        count += 1
    takes_self = in_class and "staticmethod" not in decorator_names(function)
    return count - 1 if takes_self else count


def is_packed(node: ast.Assign | ast.NamedExpr, tested: set[int]) -> bool:
    """Whether an assignment is packed; `tested` are the nodes inside conditions, where a walrus may stand."""
    if isinstance(node, ast.NamedExpr):
        return id(node) not in tested
    return assigns_several(node)


def assigns_several(assignment: ast.Assign) -> bool:
    """Whether a statement assigns several values to several targets, and is not a swap."""
    targets = [target for target in assignment.targets if isinstance(target, ast.Tuple | ast.List)]
    if not targets:
        return False
    value = assignment.value
    if isinstance(value, ast.GeneratorExp | ast.ListComp):
        return True
    if isinstance(value, ast.IfExp):
        return isinstance(value.body, ast.Tuple | ast.List) or isinstance(value.orelse, ast.Tuple | ast.List)
    if not isinstance(value, ast.Tuple | ast.List):
        return False
    values = sorted(ast.unparse(element) for element in value.elts)
    for target in targets:
        names = sorted(ast.unparse(name) for name in target.elts)
        if names != values:
            return True
    return False


def nodes_in_conditions(tree: ast.AST) -> Iterator[int]:
    """Return the identities of all nodes inside a condition, where a walrus is at home."""
    for node in ast.walk(tree):
        conditions: list[ast.expr] = []
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            conditions = [node.test]
        elif isinstance(node, ast.comprehension):
            conditions = node.ifs
        for condition in conditions:
            for inner in ast.walk(condition):
                yield id(inner)


def is_chained(expression: ast.IfExp) -> bool:
    """Whether a conditional expression has another as one of its two results."""
    return isinstance(expression.body, ast.IfExp) or isinstance(expression.orelse, ast.IfExp)


def count_conditions(comprehension: Comprehension) -> int:
    """Count the conditions of a comprehension; operands of `and` and `or` count one each."""
    count = 0
    for generator in comprehension.generators:
        for condition in generator.ifs:
            count += count_operands(condition)
    return count


def count_operands(condition: ast.expr) -> int:
    """Count what `and` and `or` join in a condition."""
    if isinstance(condition, ast.BoolOp):
        return sum(count_operands(operand) for operand in condition.values)
    if isinstance(condition, ast.UnaryOp):
        return count_operands(condition.operand)
    return 1


def is_any(node: ast.AST) -> bool:
    """Whether a node is the type `Any`."""
    if isinstance(node, ast.Name):
        return node.id == "Any"
    return isinstance(node, ast.Attribute) and node.attr == "Any"


def measure_tree(root: Path) -> list[FileShape]:
    """Measure every Python file under a folder, in the order of their paths."""
    return [measure_file(path) for path in sorted(root.rglob("*.py"))]


def group_by_folder(files: Iterable[FileShape]) -> dict[Path, list[FileShape]]:
    """Group files by the folder that they stand in."""
    folders: dict[Path, list[FileShape]] = {}
    for file in files:
        folders.setdefault(file.path.parent, []).append(file)
    return dict(sorted(folders.items()))


def packed_per_1000(files: Iterable[FileShape]) -> float:
    """Return the packed assignments per 1,000 lines."""
    files = list(files)
    lines = sum(file.lines for file in files)
    packed = sum(len(file.packed) for file in files)
    return 1000 * packed / lines if lines else 0.0


def count_modules(files: Iterable[FileShape]) -> int:
    """Count the files of a folder without `__init__.py`."""
    return sum(file.path.name != "__init__.py" for file in files)


def file_offences(file: FileShape) -> Iterator[Offence]:
    """Find what is past a limit inside one file."""
    if file.lines > MAX_FILE_LINES:
        yield Offence(file.path, 1, f"file of {file.lines} lines (limit {MAX_FILE_LINES})")
    for function in file.functions:
        if function.is_kernel:
            continue
        if function.lines > MAX_FUNCTION_LINES:
            message = f"{function.name} has {function.lines} lines (limit {MAX_FUNCTION_LINES})"
            yield Offence(file.path, function.line, message)
        if function.parameters > MAX_PARAMETERS:
            message = f"{function.name} takes {function.parameters} parameters (limit {MAX_PARAMETERS})"
            yield Offence(file.path, function.line, message)
    for line in file.chained:
        yield Offence(file.path, line, "chained conditional expression")
    for line in file.crowded:
        yield Offence(file.path, line, "comprehension with over three conditions")


def folder_offences(files: Iterable[FileShape]) -> Iterator[Offence]:
    """Find the folders with too many modules."""
    for folder, members in group_by_folder(files).items():
        modules = count_modules(members)
        if modules > MAX_MODULES:
            yield Offence(folder, 1, f"folder of {modules} modules (limit {MAX_MODULES})")


def packed_offences(root: Path, files: list[FileShape]) -> Iterator[Offence]:
    """Find the packed assignments of the parts that have too many: the whole, or a folder at its top."""
    parts: dict[Path, list[FileShape]] = {root: files}
    for file in files:
        inside = file.path.relative_to(root).parts
        if len(inside) > 1:
            parts.setdefault(root / inside[0], []).append(file)
    too_many: dict[Path, FileShape] = {}
    for part, members in parts.items():
        rate = packed_per_1000(members)
        if rate > MAX_PACKED_PER_1000:
            yield Offence(part, 1, f"{rate:.1f} packed assignments per 1,000 lines (limit {MAX_PACKED_PER_1000:g})")
            too_many.update((file.path, file) for file in members)
    for path, file in sorted(too_many.items()):
        for line in file.packed:
            yield Offence(path, line, "packed assignment")


def find_offences(root: Path, files: list[FileShape]) -> list[Offence]:
    """Find everything that is past a limit."""
    offences: list[Offence] = []
    for file in files:
        offences.extend(file_offences(file))
    offences.extend(folder_offences(files))
    offences.extend(packed_offences(root, files))
    return offences


def format_row(name: str, files: list[FileShape], modules: str) -> str:
    """Write the measures of some files as a row of the table."""
    functions = [function for file in files for function in file.functions]
    limited = [function for function in functions if not function.is_kernel]
    columns = [
        len(files),
        sum(file.lines for file in files),
        len(functions),
        max((function.lines for function in limited), default=0),
        max((function.parameters for function in limited), default=0),
        len(functions) - len(limited),
        f"{packed_per_1000(files):.1f}",
        sum(len(file.chained) for file in files),
        sum(len(file.crowded) for file in files),
        sum(file.anys for file in files),
        modules,
    ]
    return f"{name:40}" + "".join(f"{column:>11}" for column in columns)


def format_table(files: list[FileShape]) -> str:
    """Write the table: a row a folder, and a row of totals."""
    names = ["files", "lines", "functions", "longest", "parameters", "kernels", "packed", "chained", "crowded", "Any"]
    rows = [f"{'folder':40}" + "".join(f"{name:>11}" for name in [*names, "modules"])]
    for folder, members in group_by_folder(files).items():
        rows.append(format_row(str(folder), members, str(count_modules(members))))
    rows.append(format_row("total", files, ""))
    return "\n".join(rows)


def main(arguments: list[str] | None = None) -> int:
    """Print the table and what is past a limit; return the exit status."""
    parser = argparse.ArgumentParser(description="Measure the shape of the code.")
    parser.add_argument(
        "folders", nargs="*", type=Path, default=[Path("src/curricle"), Path("scripts")], help="what to measure"
    )
    parser.add_argument("--report", action="store_true", help="exit with 0 also where something is past a limit")
    options = parser.parse_args(arguments)
    failed = False
    for root in options.folders:
        files = measure_tree(root)
        if not files:
            parser.error(f"{root} holds no Python files")
        offences = find_offences(root, files)
        print(format_table(files))
        for offence in offences:
            print(offence)
        print(f"{root}: {len(offences)} past a limit\n" if offences else f"{root}: all within the limits\n")
        failed = failed or bool(offences)
    return 1 if failed and not options.report else 0


if __name__ == "__main__":
    sys.exit(main())
