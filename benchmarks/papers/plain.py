"""A setting's reference models without scores of any of them: cheaper where only their margins are asked for."""

from benchmarks.papers.settings import members
from noshadow.reference import train_references


def plain_references(setting, trained, folder, *, module=None, models=None):
    """Reference models of a setting, its own number or fewer, in `references_plain` or `references_N`; trained where they are not there.

    module: the audited model, whose own signals are recorded too; None: none.
    """
    count, x, y = members(setting, len(trained.x)), trained.x.numpy(), trained.y.numpy().squeeze()
    return train_references(
        folder / ("references_plain" if models is None else f"references_{models}"),
        trained,
        (x[:count], y[:count]),
        (x[count:], y[count:]),
        model=module,
        models=models or setting.references,
        fraction=setting.fraction,
        engine=setting.engine,
        workers=1,
        keep_outputs=False,
        progress=False,
    )
