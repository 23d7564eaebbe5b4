"""What is installed and imported: the core, its extras, and the tools that check the code."""

import re
import subprocess
import sys
import tomllib

import pytest
from helpers.pages import part
from helpers.paths import ROOT

from curricle.errors import UsageError
from curricle.llm.clients.endpoint import Endpoint
from curricle.llm.clients.options import ModelOptions

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
HEAVY = {"torch", "numba", "transformers", "matplotlib", "openai", "tensorboardX", "trl", "peft", "pandas", "pyarrow"}


def package_name(requirement):
    return re.match(r"[\w-]+", requirement)[0]


def test_the_table_of_extras_is_what_can_be_installed():
    rows = part((ROOT / "docs" / "install.md").read_text(), "extras")[2:]
    shown = {}
    for row in rows:
        name, purpose, packages = row.strip("| ").split(" | ")
        assert purpose
        shown[name.strip("`")] = packages.split(", ")
    for name, requirements in {"(core)": PROJECT["dependencies"], **EXTRAS}.items():
        packages = [package_name(requirement) for requirement in requirements]
        assert shown.pop(name) == [package for package in packages if package != "curricle"]
    assert not shown


def test_dev_has_every_extra():
    (brought,) = [re.findall(r"\w+", line.partition("[")[2]) for line in EXTRAS["dev"] if line.startswith("curricle[")]
    packages = {package_name(requirement) for requirement in EXTRAS["dev"]}
    assert set(EXTRAS) - set(brought) - packages == {"dev", "benchmarks"}


def test_extras_that_messages_and_pages_name_exist():
    pages = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    named = set()
    for page in pages:
        for names in re.findall(r"pip install '(?:curricle|\.)\[([\w,-]+)\]'", page.read_text()):
            named.update(names.split(","))
    assert named and named <= set(EXTRAS)


def imported_by(code):
    """The top packages that are imported after some code has run in a process of its own."""
    code += "\nimport sys\nprint('imported', *{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("imported ")[2].split())


def test_importing_curricle_imports_nothing_heavy():
    imported = imported_by("import curricle")
    assert "curricle" in imported
    assert not imported & {*HEAVY, "numpy", "gymnasium", "pydantic", "rich", "typer"}


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"]])
def test_help_imports_nothing_heavy(words):
    imported = imported_by(
        f"import sys\nsys.argv = {['curricle', *words]}\nfrom curricle.cli import main\n"
        "try:\n    main()\nexcept SystemExit as error:\n    assert not error.code"
    )
    assert "typer" in imported
    assert not imported & HEAVY


def test_an_endpoint_without_its_extra_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(UsageError, match=r"needs openai: pip install 'curricle\[endpoints\]'"):
        Endpoint(ModelOptions(model="qwen3", base_url="http://localhost:11434/v1"))


def test_hooks_are_tools_of_make_lint():
    yaml = pytest.importorskip("yaml")
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    tools = {hook["entry"].split()[0].rpartition("/")[2] for hook in hooks}
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert tools == {"ruff", "mypy", "codespell"}
    assert tools <= set(re.findall(r"\$\(BIN\)/([\w-]+)", lint))


def test_the_workflow_runs_every_python_that_is_named():
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    minor = re.compile(r"Python :: (3\.\d+)$")
    named = [match[1] for line in PROJECT["classifiers"] if (match := minor.search(line))]
    assert jobs["test"]["strategy"]["matrix"]["python"] == named
    targets = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert targets == ["make lint", "make test", "make core"]
