"""Write the notebooks of the documentation, run them, and keep what they show."""
# ruff: noqa: E501  (a cell is a line)

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

OUT = Path(__file__).resolve().parent.parent / "docs" / "notebooks"

NOTEBOOKS: dict[str, list[str]] = {
    "first-steps": [
        "# First steps\n\nA private profile of items you hold, and a sketch of them.",
        "import unnoise as un\n\nurls = [f'/page/{i % (1 + i // 9)}' for i in range(5000)]\np = un.profile(urls, epsilon=1)\np",
        "Every answer is a number with an interval:",
        "p.distinct, p.at_least(3), p.exactly(1)",
        "p.table([1, 2, 3, 5, 10])",
        "The same through a sketch, which could have been kept, updated, merged or sent:",
        "sketch = un.Sketch.hashed(2**12, epsilon=1)\nsketch.update(urls)\nq = un.reconstruct(sketch.release())\nq.plot();",
        "print(sketch.guarantee)",
    ],
    "reach": [
        "# Reach and frequency\n\nThree sites count users; nobody shows their rows.",
        "import numpy as np\n\nimport unnoise as un\n\nrng = np.random.default_rng(1)\nsites = {}\nfor name in ('news', 'shop', 'video'):\n"
        "    sketch = un.Sketch.hashed(2**13, epsilon=1, item_types=['int'])\n    sketch.update(rng.choice(9000, 3000, replace=False))\n"
        "    sketch.release()\n    sites[name] = sketch",
        "How many users were reached by any of them, and how many by two:",
        "un.union(*sites.values(), max_count=1), un.overlap(sites['news'], sites['shop'], max_count=1)",
        "All subsets at once, without contradictions:",
        "un.consistent_table(sites, subsets='all', max_count=1)",
    ],
    "degrees": [
        "# Degrees of a graph\n\nThe degree of a node is how often it occurs in the edge list.",
        "import numpy as np\n\nimport unnoise as un\n\nrng = np.random.default_rng(2)\nedges = rng.zipf(1.8, (30_000, 2)) % 5_000\n"
        "degrees = np.bincount(edges.ravel())\np = un.profile(edges.ravel(), epsilon=1)",
        "un.profile(edges.ravel(), epsilon=1).plot();",
        "Beside the truth, which only a simulation has:",
        "[(k, int((degrees >= k).sum()), p.at_least(k)) for k in (1, 2, 10, 100)]",
        "One edge is two occurrences: ε = 2 for an edge.",
    ],
    "merging": [
        "# Merging days\n\nEach day has noise of its own; merged, they add up.",
        "import numpy as np\n\nimport unnoise as un\n\nrng = np.random.default_rng(3)\n"
        "days = [rng.zipf(1.7, 8000) % 20_000 for _ in range(5)]\nsketches = []\nfor day in days:\n"
        "    sketch = un.Sketch.hashed(2**14, epsilon=1, item_types=['int'])\n    sketch.update(day)\n    sketch.release()\n"
        "    sketches.append(sketch)",
        "week = sum(sketches)\nprint(week)\np = un.reconstruct(week.release())\np",
        "The truth:",
        "len(set(np.concatenate(days))), sum(map(len, days))",
    ],
    "direct": [
        "# Direct or sketch?\n\nWho holds all rows does better without a sketch.",
        "import numpy as np\n\nimport unnoise as un\n\nitems = np.random.default_rng(4).zipf(1.8, 20_000) % 8_000\n"
        "truth = np.unique(items).size\nhere = un.profile(items, epsilon=0.5)\n"
        "there = un.profile(items, epsilon=0.5, model='sketch', cells=2**13)\ntruth, here.distinct, there.distinct",
        "The guarantee is the same, ε = 0.5 for one occurrence; what differs is where the noise goes, and what can be done "
        "later: a sketch can be updated, merged and sent.",
        "print(here.guarantee)",
    ],
    "check": [
        "# Checking a claim\n\nCells at or below zero must look like the noise they are said to carry, whatever the data.",
        "import numpy as np\n\nimport unnoise as un\n\ncounts = np.random.default_rng(5).poisson(0.5, 20_000)\n"
        "honest = counts + un.discrete_laplace(20_000, 1)\nun.reconstruct(honest, epsilon=1).diagnostics['claim']",
        "The same cells, said to be ε = 2:",
        "import warnings\n\nwith warnings.catch_warnings(record=True) as said:\n    warnings.simplefilter('always')\n"
        "    un.reconstruct(honest, epsilon=2)\nprint(said[0].message)",
    ],
}
"""Cells of each notebook: a cell that begins with a capital letter or # and holds no code is text."""


def notebook(cells: list[str]) -> nbformat.NotebookNode:
    made = nbformat.v4.new_notebook()
    for number, cell in enumerate(cells):
        text = cell.startswith("# ") or (cell[0].isupper() and "=" not in cell.split("\n")[0].replace("ε =", ""))
        made.cells.append(nbformat.v4.new_markdown_cell(cell) if text else nbformat.v4.new_code_cell(cell))
        made.cells[-1]["id"] = f"cell-{number}"
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return made


def main() -> None:
    OUT.mkdir(exist_ok=True)
    for name, cells in NOTEBOOKS.items():
        made = notebook(cells)
        NotebookClient(made, timeout=300, kernel_name="python3").execute()
        for cell in made.cells:
            cell.metadata.pop("execution", None)
        nbformat.write(made, OUT / f"{name}.ipynb")
        print(name)


if __name__ == "__main__":
    main()
