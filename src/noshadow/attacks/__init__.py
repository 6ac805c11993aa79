"""Membership-inference attacks with reference models: arrays of signals in, scores out."""

from noshadow.attacks.lira import lira_scores
from noshadow.attacks.loss import Memorization, loss_scores, memorization
from noshadow.attacks.rmia import rmia_scores
from noshadow.attacks.shokri import CrossFitted, shokri_scores, shokri_success
from noshadow.attacks.success import AttackSuccess, attack_success

__all__ = [
    "AttackSuccess",
    "CrossFitted",
    "Memorization",
    "attack_success",
    "lira_scores",
    "loss_scores",
    "memorization",
    "rmia_scores",
    "shokri_scores",
    "shokri_success",
]
