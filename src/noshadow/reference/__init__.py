"""Reference models: plan who is in, train, store what they leave behind, and attack with it.

The modules are plan (who is in), run and recipe (training), store (what models leave behind), and
the attacks that use it.
"""

from noshadow.reference.attack_list import AttackOptions
from noshadow.reference.dropout import SeededDropout
from noshadow.reference.ground_truth import ground_truth, with_ground_truth
from noshadow.reference.plan import Plan, fold_plan, plan
from noshadow.reference.queries import mirrored, shifted
from noshadow.reference.recipe import Recipe
from noshadow.reference.run import train_references
from noshadow.reference.status import Status, status
from noshadow.reference.store import References, load_references

__all__ = [
    "AttackOptions",
    "Plan",
    "Recipe",
    "References",
    "SeededDropout",
    "Status",
    "fold_plan",
    "ground_truth",
    "load_references",
    "mirrored",
    "plan",
    "shifted",
    "status",
    "train_references",
    "with_ground_truth",
]
