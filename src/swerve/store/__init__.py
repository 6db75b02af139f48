"""The store keeps the service's state on disk. `protocol` defines its interface; each engine is one module."""

from swerve.store.layouts import convert, copy_fields, describe, layout_id, layout_of, step
from swerve.store.protocol import Batch, Damaged, Entries, Fenced, InUse, Life, Row, Size, Store, StoreError
from swerve.store.urls import open_store, store_path

__all__ = [
    "Batch",
    "Damaged",
    "Entries",
    "Fenced",
    "InUse",
    "Life",
    "Row",
    "Size",
    "Store",
    "StoreError",
    "convert",
    "copy_fields",
    "describe",
    "layout_id",
    "layout_of",
    "open_store",
    "step",
    "store_path",
]
