"""The documentation is true: its Python runs, its commands exist, its links lead somewhere.

Blocks marked ``python`` of a page run one after the other, as a reader would paste them; blocks marked
``py`` need a facility or a file that is not here. Commands in ``bash`` blocks must name commands and
options that exist; those in ``RUN`` run too, since the Python after them reads what they write.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from puma_coffea import exceptions
from puma_coffea.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN = {"tutorial.md": ("puma-coffea run fileset.json --output out", "puma-coffea report out")}

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)

# What the reader of a page has already.
GIVEN = {
    "README.md": """
from distributed import Client, LocalCluster
from puma_coffea import open_events, sample_path
events = open_events(sample_path("zvv_pu140"))
client = Client(LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None))
fileset = {"zvv": {"files": {sample_path("zvv_pu140"): "Delphes"}}}
""",
}


def blocks(page):
    """Language and content of a page's blocks of code."""
    return [match.groups() for match in BLOCK.finditer(page.read_text())]


def commands(page):
    """Every ``puma-coffea`` line of a page's shell blocks."""
    lines = [
        line for kind, content in blocks(page) if kind == "bash" for line in content.splitlines()
    ]
    return [line for line in lines if "puma-coffea " in line]


def links(page):
    """A page's links within the repository."""
    return [link for link in LINK.findall(page.read_text()) if "://" not in link]


def pages_with(what):
    """A test's cases: pages that have some of it."""
    return pytest.mark.parametrize("page", list(filter(what, PAGES)), ids=lambda page: page.name)


def script(page):
    """A page's Python, and its commands that can run, as one script."""
    parts = [GIVEN.get(page.name, "")]
    for language, content in blocks(page):
        if language == "python":
            parts.append(content)
        elif language == "bash":
            wanted = [
                line.split() for line in content.splitlines() if line in RUN.get(page.name, ())
            ]
            parts += [f"import subprocess\nsubprocess.run({each}, check=True)" for each in wanted]
    body = "\n".join(parts)
    # A cluster's processes import the script again.
    return "if __name__ == '__main__':\n" + "\n".join(f"    {line}" for line in body.splitlines())


@pages_with(lambda page: "```python" in page.read_text())
def test_the_python_of_a_page_runs(page, tmp_path):
    (tmp_path / "page.py").write_text(script(page))
    commands_here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env=os.environ | {"PATH": commands_here},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def options(name):
    command = typer.main.get_command(app).commands[name]
    return {"--help"}.union(*(each.opts + each.secondary_opts for each in command.params))


@pages_with(commands)
def test_the_commands_of_a_page_exist(page):
    for line in commands(page):
        words = shlex.split(line.split("puma-coffea ", 1)[1], comments=True)
        given = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert given <= options(words[0]), line


def anchors(page):
    """What mkdocs makes of a page's headings."""
    return {
        re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", h).strip().lower())
        for h in HEADING.findall(page.read_text())
    }


@pages_with(links)
def test_the_links_of_a_page_lead_somewhere(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_refusal_is_in_the_table_of_errors():
    table = (ROOT / "docs" / "input.md").read_text().split("## Errors and what to do")[1]
    names = {n for n, value in vars(exceptions).items() if isinstance(value, type)}
    assert {n for n in names if f"`{n}`" not in table} == {"PumaCoffeaError"}
