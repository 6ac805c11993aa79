"""What the score functions hand back."""

from dataclasses import dataclass, field

from noshadow.checks import Array
from noshadow.columns import named
from noshadow.linalg import SpdInverse
from noshadow.outcomes import Damping

COLUMNS = (*named(source="losses", score=True), *named(source="scores", score=True))


@dataclass(frozen=True, eq=False)
class RecordScores:
    """Scores of n training records and how they were obtained; larger = riskier in every column.

    Columns are float64 (n,), or None where not applicable or not asked for (`not_applicable` says
    why). `newton`, `loo` and `shift` are +inf for an interpolated record (leverage 1).

    Attributes:
        damping: λ on the sum over records, with the kind of its source; `damping_used` is its
            value, `damping_source` its sentence.
        effective_dof: Σ leverage. rank: numerical rank of [features, 1].
        condition: 1-norm condition estimate of the factored (whitened, unit-diagonal) curvature.
        jitter: what the factorisation needed on its unit diagonal; 0 normally.
        stationarity: left-over gradient of the head in units of a typical record's (0 at the
            minimum).
        head_residual: share of the outputs that is not a linear function of the features (0 for a
            true head); None for many layers.
        precision: "float64" or "mixed". precision_error: relative error of the riskiest records;
            with float32 products measured for Newton gaps and bounded by rounding for shifts, in
            float64 measured (bounded for one output) where 1 − leverage of a record may have lost
            digits, else None. At most 1 in float64: no digit is left.
        seconds: wall time. notes: sentences a reader must see; an audit states some of them as
            findings instead.
        method: "exact"; "ekfac" (`exact` says which records were refined); "dual" or "projected"
            (many layers).
        layers: names of the layers that were scored; ("last",) for arrays. parameters: how many
            numbers they hold, None for arrays.
        exact: bool (n,), True where a record of an approximated head was solved exactly; None when
            the method treats all alike.
        errors: column → estimated relative error of an approximated column, measured; empty for
            exact methods.
        dimensions: of projected gradients; None for other methods. As `effective_dof` comes near to
            them, scores become too small.
    """

    task: str
    damping: Damping
    effective_dof: float
    rank: int
    condition: float
    jitter: float
    stationarity: float
    head_residual: float | None
    precision: str
    precision_error: float | None
    seconds: float
    notes: tuple[str, ...]
    not_applicable: dict[str, str]
    method: str = "exact"
    layers: tuple[str, ...] = ("last",)
    parameters: int | None = None
    exact: Array | None = None
    errors: dict[str, float] = field(default_factory=dict)
    dimensions: int | None = None
    loss: Array | None = None
    gradient_norm: Array | None = None
    entropy: Array | None = None
    leverage: Array | None = None
    influence: Array | None = None
    newton: Array | None = None
    loo: Array | None = None
    shift: Array | None = None
    margin_leverage: Array | None = None

    @property
    def damping_used(self) -> float:
        """λ on the sum over records."""
        return self.damping.value

    @property
    def damping_source(self) -> str:
        """Where λ comes from, in one sentence."""
        return self.damping.sentence

    def columns(self) -> dict[str, Array]:
        """The columns that hold values, by name."""
        held = ((name, getattr(self, name)) for name in COLUMNS)
        return {name: values for name, values in held if values is not None}


@dataclass(frozen=True, eq=False)
class Solved:
    """What one task's solver hands to `record_scores`."""

    columns: dict[str, Array]
    inverse: SpdInverse
    dof: float
    precision: str = "float64"
    precision_error: float | None = None
    notes: tuple[str, ...] = ()
    absent: dict[str, str] = field(default_factory=dict)
