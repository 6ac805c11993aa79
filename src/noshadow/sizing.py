"""How many reference models show the sizes of so many records, before any is trained.

`exposure` asks the same of the margins that it is given. Nothing is imported here: light commands
read it too.
"""

from dataclasses import dataclass

# Records with two margins on a side, from which the side's spread is fitted.
FITTED_RECORDS = 200
# Records with two margins on a side from which sizes are told. A spread fits from 200 on, but on
# the calibration setup with wrong labels that had 225 of them, rates were off by more than 0.05; on
# those with 500 they were not (benchmarks/results/exposure/rules.json, "2 references, chosen").
# Where records have many margins each shows its own spread, and as many as its fit needs will do.
SIZED_RECORDS = 300
MANY_MARGINS = 8
# A quarter of the records is in both of two independent halves, and a quarter in neither: 300 and
# more of so many, by three standard errors.
ENOUGH_FOR_TWO = 1400
# A line through fewer test records than this moves by more than a tenth of a standard deviation.
LEAST_TEST_RECORDS = 100
# Two independent halves leave a quarter of the test records in both, and those say nothing about
# the scale: LEAST_TEST_RECORDS and more are left of so many, by three standard errors.
TESTS_FOR_TWO = 160
# From four models on a plan is balanced, and each record is in half of them.
TWO, BALANCED = 2, 4
# Fewer records cannot be told apart from noise, and nothing is weighed.
LEAST_RECORDS = 20


def models_for_sizes(records: int) -> int | None:
    """The fewest reference models that identify sizes of so many records; None where none do.

    Two are drawn independently; more are balanced, with every record in half of them.
    """
    if records < FITTED_RECORDS:
        return None
    if records < SIZED_RECORDS:
        return 2 * MANY_MARGINS
    return BALANCED if records < ENOUGH_FOR_TWO else TWO


def would_identify(records: int) -> str:
    """What would identify sizes of so many records."""
    models = models_for_sizes(records)
    if models is None:
        return f"Sizes of fewer than {FITTED_RECORDS} records are not identified, whatever the number of reference models."
    if models == TWO:
        return "Two or more reference models on independent random halves would identify sizes."
    words = "Four" if models == BALANCED else "Sixteen"
    return f"{words} reference models or more, with every record in half of them, would identify sizes."


@dataclass(frozen=True)
class Needed:
    """How many reference models on random halves would identify sizes.

    Attributes:
        models: the fewest; None where no number of them would. reason: why none would, as the rest
            of a sentence; "" where some would.
    """

    models: int | None
    reason: str = ""


def needed_for_sizes(records: int, test_records: int) -> Needed:
    """The fewest reference models from which an audit of these records gets sizes.

    Args:
        records, test_records: how many training and test records the audited model has.

    Exact when: margins are not tied at an end, and left-out references do not refuse the rates.
    Cost: O(1).
    """
    if test_records < LEAST_TEST_RECORDS:
        return Needed(None, f"they take {LEAST_TEST_RECORDS} test records, which show the scale, and there are {test_records}")
    models = models_for_sizes(records)
    if models is None:
        return Needed(None, would_identify(records).rstrip("."))
    return Needed(BALANCED if models == TWO and test_records < TESTS_FOR_TWO else models)
