"""Gradients of sequences' losses as inner products: what a step on one does to another."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

import numpy as np
import torch
from torch import Tensor

from noshadow.checks import Array, InputError, NotApplicable
from noshadow.progress import tracked
from noshadow.views.token_logits import windows_read
from noshadow.views.token_sequences import TokenSequences
from noshadow.views.token_windows import Window, token_windows
from noshadow.views.undisturbed import undisturbed
from noshadow.views.view import Settings
from noshadow.views.weights_between import ModelBetween

BATCH = 16  # sequences in a step of training, where nobody says: how much of a mean gradient is noise
MOST_SEQUENCES = 5_000  # beyond, n × n numbers and their inverse are no small thing beside an audit
ROWS_AT_ONCE = 512
LEAST_WIDTH = 100  # numbers that a gradient is folded to: errors of a tenth of the norms
BYTES_PER_PARAMETER = 40  # beside the gradients: sums, squares, scale, and where each is folded to


def gradient_kernel(
    model: ModelBetween,
    parts: Sequence[TokenSequences],
    *,
    context: int | None,
    stride: int | None,
    settings: Settings,
    max_memory: float,
    seed: int = 0,
) -> Array:
    """K_ij = ∇ℓ_iᵀ D ∇ℓ_j over all sequences of all parts, (n, n) float64.

    ℓ_i is the mean negative log-likelihood of a sequence's scored tokens, as in `sequence_losses`;
    D = diag(v)^(−½) with v = mean² + variance/16 of each parameter's gradients over the sequences,
    the second moment of a batch's gradient as Adam keeps it.

    Args:
        model: at the weights whose gradients are taken. parts: sequences, as they were read.
        context, stride: of windows, as they were read. settings: device and progress.
        max_memory: bytes for gradients. Where n · p numbers of float32 do not fit, each gradient is
            folded to as many as do, by adding parameters up with random signs (a count sketch,
            which keeps inner products in the mean). seed: of these signs.

    Raises:
        NotApplicable: more than MOST_SEQUENCES sequences, more parameters than fit, or gradients
            that cannot be taken (for want of memory, say) or are not finite.

    Exact when: n · p · 4 bytes fit into half of max_memory; else inner products have errors of
        about 1/√(max_memory/8n) of the norms.
    Cost: a forward and a backward pass per sequence, one at a time; twice where gradients are
        folded. O(n²p) sums.
    Reference: count sketch: Charikar, Chen and Farach-Colton 2002.
    """
    count = sum(map(len, parts))
    if count > MOST_SEQUENCES:
        raise NotApplicable(f"{count:,} sequences are more than the {MOST_SEQUENCES:,} whose gradients are compared with each other")
    size = model.size
    if size * BYTES_PER_PARAMETER > max_memory:
        need = f"gradients of {size:,} parameters take {size * BYTES_PER_PARAMETER / 1e9:.2g} GB"
        raise NotApplicable(f"{need}, more than max_memory allows; a fine-tune by LoRA has few")
    width = int(max_memory / 2 / 4 / max(count, 1))
    folded = size > width
    if folded and width < LEAST_WIDTH:
        raise NotApplicable(f"max_memory leaves {width} numbers for each of {count:,} gradients, too few to compare them by")
    with undisturbed(model.inside, settings) as device:

        def walk(what: str, use: Callable[[int, Tensor], None]) -> None:
            with closing(tracked(list(_numbered(parts, context, stride)), what, show=settings.progress)) as steps:  # type: ignore[type-var]
                for row, sequences, number, windows in steps:
                    use(row, _gradient(model, sequences, number, windows, device))

        held = np.empty((count, min(size, width)), dtype=np.float32)
        if folded:
            total, squares = np.zeros(size), np.zeros(size)
            walk("Gradients' scale", lambda row, found: _add(found, total, squares))
            scale = torch.from_numpy(_scale(total, squares, count))
            fold = _fold(size, held.shape[1], seed)
            walk("Gradients", lambda row, found: held.__setitem__(row, fold(found * scale)))
        else:
            walk("Gradients", lambda row, found: held.__setitem__(row, found.numpy()))
            held *= _scale(held.sum(0, dtype=np.float64), (held**2).sum(0, dtype=np.float64), count)
    if not np.isfinite(held).all():
        raise NotApplicable("the gradients of some sequences are not finite")
    return _inner_products(held)


def _numbered(
    parts: Sequence[TokenSequences], context: int | None, stride: int | None
) -> list[tuple[int, TokenSequences, int, list[Window]]]:
    """Row, the part it is in, its number there, and its windows."""
    found: list[tuple[int, TokenSequences, int, list[Window]]] = []
    for part in parts:
        own: list[list[Window]] = [[] for _ in range(len(part))]
        for window in token_windows(part, context, stride):
            own[window.sequence].append(window)
        found += [(len(found) + number, part, number, windows) for number, windows in enumerate(own)]
    return found


@contextmanager
def _or_not_applicable() -> Iterator[None]:
    """Turn what keeps gradients from being taken into a reason: the losses are there all the same.

    These are layers in few bits, kernels that only run forwards, and memory, of which a pass that
    will be walked back takes more.
    """
    try:
        yield
    except (RuntimeError, InputError) as error:
        cause = error.__cause__ if isinstance(error, InputError) and error.__cause__ is not None else error
        reason = (str(cause).strip() or type(cause).__name__).splitlines()[0].rstrip(".")
        raise NotApplicable(f"the model's gradients cannot be taken ({reason[:120]})") from error


@_or_not_applicable()
def _gradient(model: ModelBetween, sequences: TokenSequences, number: int, windows: Sequence[Window], device: torch.device) -> Tensor:
    """∇ℓ of one sequence, (p,) float32 on the processor: windows add up."""
    tensors = list(model.weights.values())
    total = [torch.zeros_like(tensor) for tensor in tensors]
    scored = int(sequences.counts[number].sum())
    for window in windows:
        with torch.enable_grad():
            ((ids, places, logits),) = windows_read(model, sequences, [window], device)
            # Of a model that is spread over devices the head may be on another than the rest.
            logs = torch.log_softmax(logits[(places - 1).to(logits.device)].float(), 1)
            loss = -logs.gather(1, ids[places].to(logits.device)[:, None]).sum() / scored
            found = torch.autograd.grad(loss, tensors, allow_unused=True)
        for place, gradient in enumerate(found):
            if gradient is not None:
                total[place] += gradient
    return torch.cat([tensor.detach().float().flatten().cpu() for tensor in total])


def _add(found: Tensor, total: Array, squares: Array) -> None:
    values = found.numpy().astype(np.float64)
    total += values
    squares += values**2


def _scale(total: Array, squares: Array, count: int) -> Array:
    """√D of each parameter: v^(−¼), and 0 where no sequence has a gradient."""
    mean = total / count
    moment = mean**2 + np.maximum(squares / count - mean**2, 0) / BATCH
    found = np.zeros(len(moment), dtype=np.float32)
    np.power(moment, -0.25, out=found, where=moment > 0, casting="same_kind")
    return found


def _fold(size: int, width: int, seed: int) -> Callable[[Tensor], Array]:
    """Vectors of `size` added up into `width` places with random signs."""
    rng = np.random.default_rng(seed)
    places = torch.from_numpy(rng.integers(0, width, size))
    signs = torch.from_numpy(rng.choice(np.array([-1.0, 1.0], dtype=np.float32), size))

    def fold(values: Tensor) -> Array:
        found: Array = torch.zeros(width).index_add_(0, places, values * signs).numpy()
        return found

    return fold


def _inner_products(held: Array) -> Array:
    found: Array = np.empty((len(held), len(held)))
    for start in range(0, len(held), ROWS_AT_ONCE):
        found[start : start + ROWS_AT_ONCE] = held[start : start + ROWS_AT_ONCE] @ held.T
    found += found.T.copy()
    found /= 2
    return found
