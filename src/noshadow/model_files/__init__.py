"""Models in files that are no Python objects, and the tables they are audited on."""

from noshadow.model_files.entry import load_model, read_model
from noshadow.model_files.held import HeldModel
from noshadow.model_files.tables import Columns, Split, read_split, require_same_columns

__all__ = ["Columns", "HeldModel", "Split", "load_model", "read_model", "read_split", "require_same_columns"]
