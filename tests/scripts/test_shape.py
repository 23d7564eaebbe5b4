import importlib.util
import sys

import pytest
from helpers.paths import ROOT


@pytest.fixture(scope="module")
def shape():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("shape", ROOT / "scripts" / "shape.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["shape"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["shape"]


@pytest.fixture
def measure(shape, tmp_path):
    """Measure a piece of source text."""

    def measured(text):
        path = tmp_path / "sample.py"
        path.write_text(text)
        return shape.measure_file(path)

    return measured


@pytest.mark.parametrize(
    "line",
    [
        "a, b = x, y",
        "self.a, self.b = x, y",
        "a, b = 0, []",
        "a, b = b, a % b",
        "[a, b] = [x, y]",
        "(a, b), c = f(), x",
        "a, b = (x, y) if c else (z, w)",
        "a, b = (f(i) for i in (x, y))",
        "a, b = [f(i) for i in (x, y)]",
        "f(a := x)",
        "b = (a := x) + 1",
    ],
)
def test_an_assignment_of_several_values_is_packed(measure, line):
    assert measure(line).packed == [1]


@pytest.mark.parametrize(
    "line",
    [
        "a, b = f()",
        "a, b = b, a",
        "a[i], a[j] = a[j], a[i]",
        "a = x, y",
        "a = b = 0",
        "a, b = x",
        "a, b = f() if c else g()",
        "if a := f(): pass",
        "while (a := f()) and b: pass",
        "[a for b in c if (a := b)]",
    ],
)
def test_unpacking_swaps_and_tuples_are_not_packed(measure, line):
    assert measure(line).packed == []


def test_chained_conditional_expressions(measure):
    assert measure("a if x else b").chained == []
    assert measure("a if x else b if y else c").chained == [1]
    assert measure("(a if x else b) if y else c").chained == [1]
    assert measure("a if (b if x else c) else d").chained == []


def test_comprehensions_with_over_three_conditions(measure):
    assert measure("[a for a in b if c and d if e]").crowded == []
    assert measure("[a for a in b if c and d if e or f]").crowded == [1]
    assert measure("{a: g for a in b if c for g in a if d and not (e or f)}").crowded == [1]


def test_functions(measure):
    functions = measure(
        "@decorator\ndef outer(a, b=1, *c, d, **e):\n    def inner(self): ...\n    return inner\n"
        "class A:\n    def method(self, a): ...\n"
        "    @classmethod\n    def make(cls): ...\n    @staticmethod\n    def plain(a): ...\n"
    ).functions
    found = [(function.name, function.line, function.lines, function.parameters) for function in functions]
    assert found == [
        ("outer", 2, 3, 5),
        ("inner", 3, 1, 1),
        ("method", 6, 1, 1),
        ("make", 8, 1, 0),
        ("plain", 10, 1, 1),
    ]


def test_kernels_have_no_limit_of_parameters(measure, shape):
    parameters = ", ".join("abcdefghi")
    for decorator in ("kernel", "triton.jit", "njit(cache=True)"):
        sample = measure(f"@{decorator}\ndef f({parameters}): ...")
        assert sample.functions[0].is_kernel
        assert not list(shape.file_offences(sample))
    assert not list(shape.file_offences(measure(f"def f({parameters}): ...\ng = intrinsic(f)")))
    (offence,) = shape.file_offences(measure(f"def f({parameters}): ..."))
    assert "f takes 9 parameters (limit 8)" in str(offence)


def test_any_is_counted_where_it_is_used(measure):
    assert measure("from typing import Any\na: Any = 1\ndef f(x: list[Any]) -> typing.Any: ...").anys == 3


def test_long_files_and_long_functions(measure, shape):
    body = "    pass\n" * 60
    messages = [str(offence) for offence in shape.file_offences(measure(f"def f():\n{body}" + "\n" * 440))]
    assert len(messages) == 2
    assert messages[0].endswith("sample.py:1: file of 501 lines (limit 500)")
    assert messages[1].endswith("sample.py:1: f has 61 lines (limit 60)")
    assert not list(shape.file_offences(measure(f"def f():\n{body[9:]}" + "\n" * 440)))


def test_a_folder_has_at_most_twelve_modules(shape, tmp_path, capsys):
    (tmp_path / "__init__.py").touch()
    for name in "abcdefghijkl":
        (tmp_path / f"{name}.py").touch()
    assert shape.main([str(tmp_path)]) == 0
    (tmp_path / "m.py").touch()
    assert shape.main([str(tmp_path)]) == 1
    assert f"{tmp_path}:1: folder of 13 modules (limit 12)" in capsys.readouterr().out


def test_packed_assignments_are_limited_over_the_whole_and_over_each_top_folder(shape, tmp_path, capsys):
    (tmp_path / "a" / "deep").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "deep" / "dense.py").write_text("a, b = x, y\n" + "\n" * 99)
    (tmp_path / "b" / "sparse.py").write_text("\n" * 900)
    assert shape.main([str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert f"{tmp_path / 'a'}:1: 10.0 packed assignments per 1,000 lines (limit 6)" in printed
    assert f"{tmp_path / 'a' / 'deep' / 'dense.py'}:1: packed assignment\n" in printed
    assert f"{tmp_path}:1" not in printed
    (tmp_path / "b" / "sparse.py").write_text("")
    assert shape.main([str(tmp_path)]) == 1
    assert f"{tmp_path}:1: 10.0 packed assignments" in capsys.readouterr().out


def test_a_report_does_not_fail(shape, capsys):
    assert shape.main(["--report", str(ROOT / "src" / "curricle")]) == 0
    assert "total" in capsys.readouterr().out


def test_a_folder_without_python_is_an_error(shape, tmp_path):
    with pytest.raises(SystemExit, match="2"):
        shape.main([str(tmp_path)])


def test_the_package_is_within_the_limits(shape):
    assert shape.main([str(ROOT / "src" / "curricle")]) == 0


def test_the_script_keeps_its_own_limits(shape, capsys):
    assert shape.main([str(ROOT / "scripts")]) == 0, capsys.readouterr().out
