"""Show what the tests leave out: the modules and functions of the package that no test of a selection enters.

    python scripts/entered.py                      the fast tests, those of `make quick`
    python scripts/entered.py --functions          also the functions that are never entered
    python scripts/entered.py -- tests/agents      other tests: all that follows goes to pytest

A module counts as entered when one of its functions is called, by a test or in a Python process that a test starts.
Modules without functions are left out: importing them is all there is. So are functions that numba or Triton compile,
because Python does not call them, and what a forked worker calls after the fork. Modules that only a GPU can run are
named apart where there is none. Exit status 1 if another module is never entered.
"""

import argparse
import ast
import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

from shape import Function, decorated_by_call, has_kernel_decorator

TREE = Path(__file__).resolve().parent.parent
PACKAGE = TREE / "src" / "curricle"
FOLDER = "ENTERED_FOLDER"
"""The environment variable with the folder where each process leaves what it saw. No test clears it."""
FAST = [
    *("-m", "not slow"),
    *("--deselect", "tests/hostile/test_twelve.py::test_12_a_signal_while_it_starts_is_one_line"),
]
"""The fast tests but for one, which interrupts Python as it starts: noting calls from the start on takes its time."""
AT_START = "sitecustomize.py"
"""A module of this name on the path is imported by every Python process as it starts."""
WHILE_COMPILING = ("src/curricle/worlds/crafter/observe/night_estimate.py",)
"""Numba calls these while it compiles, and its cache saves that."""
NEEDS_GPU = ("src/curricle/agents/cuda/graphs.py", "src/curricle/agents/cuda/memory.py")
"""Nothing stands in for a GPU in these; `tests/agents/ppo/test_gpu.py` enters them where there is one."""

_seen: dict[int, CodeType] = {}
"""Every code object that was called, by its id: to compare code objects takes long."""


def main() -> int:
    """Run the tests under a profile hook and print what they leave out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", action="store_true", help="also list the functions that are never entered")
    parser.add_argument("pytest", nargs="*", default=FAST, help="what to hand to pytest")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="entered-") as folder:
        hook = Path(folder) / "at-start"
        hook.mkdir()
        (hook / AT_START).write_text("import entered\n\nentered.begin()\n", encoding="utf-8")
        search = os.pathsep.join([str(hook), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": search, FOLDER: folder}
        command = [sys.executable, "-m", "pytest", "-p", "entered", *arguments.pytest]
        status = subprocess.run(command, cwd=TREE, env=environment).returncode
        entered = {tuple(place) for file in Path(folder).glob("*.json") for place in json.loads(file.read_text())}
    return report(entered, arguments.functions) or status


def report(entered: set[tuple[str, int]], show_functions: bool) -> int:
    """Print the modules of the package that are not entered; returns 1 if there are any."""
    left_out = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(TREE).as_posix()
        functions = dict(functions_of(ast.parse(path.read_text(encoding="utf-8"))))
        missing = [line for line in functions if (str(path), line) not in entered]
        if functions and len(missing) == len(functions):
            if name in NEEDS_GPU and not has_gpu():
                print(f"{name}: needs a GPU")
                continue
            if name in WHILE_COMPILING:
                print(f"{name}: called while kernels are compiled")
                continue
            left_out += 1
            print(f"{name}: never entered")
        elif show_functions:
            for line in missing:
                print(f"{name}:{line}: {functions[line]}")
    print(f"{left_out} modules are never entered" if left_out else "every module is entered")
    return int(left_out > 0)


def has_gpu() -> bool:
    """Whether torch finds a GPU."""
    import torch

    return bool(torch.cuda.is_available())


def functions_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The functions of a module that Python itself calls: the first line of each, decorators included, and its name."""
    compiled = decorated_by_call(tree)
    nodes: list[ast.AST] = [tree]
    while nodes:
        for child in ast.iter_child_nodes(nodes.pop()):
            if isinstance(child, Function):
                if has_kernel_decorator(child) or child.name in compiled:
                    continue
                yield min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)]), child.name
            nodes.append(child)


def _note(frame: FrameType, event: str, argument: object) -> None:
    if event == "call":
        _seen.setdefault(id(frame.f_code), frame.f_code)


def begin() -> None:
    """In every process of the tests: begin to note each call."""
    threading.setprofile(_note)
    sys.setprofile(_note)
    atexit.register(_write_down)


def pytest_sessionfinish() -> None:
    """As a plugin of pytest: its workers may end without calling what is registered for their end."""
    _write_down()


def _write_down() -> None:
    """Write down which functions of the package this process has called."""
    sys.setprofile(None)
    threading.setprofile(None)
    package = f"{PACKAGE}{os.sep}"
    called = [code for code in _seen.values() if code.co_filename.startswith(package)]
    places = [(code.co_filename, code.co_firstlineno) for code in called]
    folder = Path(os.environ[FOLDER])
    if folder.is_dir():  # a process that outlives the tests finds none
        (folder / f"{os.getpid()}.json").write_text(json.dumps(places), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
