"""Models in files that are no Python objects, and the tables they are audited on."""

from noshadow.model_files.entry import load_model, read_model
from noshadow.model_files.held import HeldModel
from noshadow.model_files.language_folders import LanguageModelFolder, read_language_folder
from noshadow.model_files.tables import Columns, Split, read_split, require_same_columns
from noshadow.model_files.texts import TextColumns, Texts, read_texts

__all__ = [
    "Columns",
    "HeldModel",
    "LanguageModelFolder",
    "Split",
    "TextColumns",
    "Texts",
    "load_model",
    "read_language_folder",
    "read_model",
    "read_split",
    "read_texts",
    "require_same_columns",
]
