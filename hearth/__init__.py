"""Hearth: self-hosted LLMs that sleep while nobody asks, in one process on one event loop.

Lives here: the two tables that the packages share (`demand`, `routes`), the names of objects, the
settings, and the roots that put everything together (`app`, `run`, `local`, `render`).
May not be here: what one package needs alone; an import that goes up (docs/architecture.md).
Read first: app.py, then demand.py and routes.py.
"""

__version__ = "0.1.0"
