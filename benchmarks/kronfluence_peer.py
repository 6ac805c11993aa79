"""kronfluence's EK-FAC self-scores of a linear head: the peer of benchmarks/ekfac.py.

`pip install -c constraints.txt -e .[bench]`, then `pip install -c constraints.txt --no-deps kronfluence`: with its dependencies it
would bring torchvision, which it never imports, and another torch with it.
"""

import tempfile
import time

import numpy as np
import torch


def kronfluence_self_scores(features, logits, labels, damping):
    """kronfluence's EK-FAC self-influence of the same head, on our scale (its mean curvature and damping times n).

    Returns scores, seconds and processor seconds of the factors and scores (imports and the model are not counted), and None; or
    three times None and why not.
    """
    try:
        from kronfluence.analyzer import Analyzer, prepare_model  # noqa: PLC0415 - optional peer
        from kronfluence.arguments import FactorArguments, ScoreArguments  # noqa: PLC0415
        from kronfluence.task import Task  # noqa: PLC0415
    except ImportError as error:
        return None, None, None, f"kronfluence is not importable here ({error})"

    class HeadTask(Task):
        """Cross-entropy of a linear head; sampled labels for the Fisher."""

        def compute_train_loss(self, batch, model, sample=False):
            outputs = model(batch[0])
            targets = torch.distributions.Categorical(logits=outputs.detach()).sample() if sample else batch[1]
            return torch.nn.functional.cross_entropy(outputs, targets, reduction="sum")

        def compute_measurement(self, batch, model):
            return self.compute_train_loss(batch, model)

    n = len(labels)
    design = np.column_stack([features, np.ones(n, dtype=features.dtype)])
    theta = np.linalg.lstsq(design.astype(np.float64), logits.astype(np.float64), rcond=None)[0]
    head = torch.nn.Linear(features.shape[1], logits.shape[1])
    head.weight.data, head.bias.data = torch.from_numpy(theta[:-1].T.copy()).float(), torch.from_numpy(theta[-1].copy()).float()
    model = prepare_model(torch.nn.Sequential(head), HeadTask())
    data = torch.utils.data.TensorDataset(torch.from_numpy(features), torch.from_numpy(labels))
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        analyzer = Analyzer("head", model, HeadTask(), cpu=True, disable_tqdm=True, output_dir=folder)
        started, spent = time.perf_counter(), time.process_time()
        analyzer.fit_all_factors("ekfac", data, per_device_batch_size=512, factor_args=FactorArguments(strategy="ekfac"))
        options = ScoreArguments(damping_factor=damping / n)
        analyzer.compute_self_scores("self", "ekfac", data, per_device_train_batch_size=512, score_args=options)
        elapsed, spent = time.perf_counter() - started, time.process_time() - spent
        scores = analyzer.load_self_scores("self")
    return scores["all_modules"].double().numpy() / n, elapsed, spent, None
