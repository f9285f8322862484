"""Kelix: an in-memory key-value store whose reads bypass the server.

    import kelix

    store = kelix.connect()
    store["people"][b"ada"] = b"Lovelace"
"""

import os as _os

from . import _kelix, errors
from ._kelix import ArrowBatch, ArrowScan, Completion, Item, Link, Page, Visit, Walk
from .codecs import Codec, json, number, raw, text
from .errors import *  # noqa: F403
from .errors import Error
from .queue import Queue
from .store import Build, BuildTable, Built, Cost, NewTable, Store, View, connect
from .table import ANY, Compared, Scan, Table

_os.register_at_fork(after_in_child=_kelix._forked)

__all__ = [
    "ANY",
    "ArrowBatch",
    "ArrowScan",
    "Build",
    "BuildTable",
    "Built",
    "Codec",
    "Compared",
    "Completion",
    "Cost",
    "Error",
    "Item",
    "Link",
    "NewTable",
    "Page",
    "Queue",
    "Scan",
    "Store",
    "Table",
    "View",
    "Visit",
    "Walk",
    "connect",
    "errors",
    "json",
    "number",
    "raw",
    "text",
]
