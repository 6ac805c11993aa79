"""Templates that escape everything, wherever it comes from."""

import functools

import jinja2

from noshadow.formats import shown


@functools.cache
def escaping_templates(package: str) -> jinja2.Environment:
    """The folder `templates` of a package: text is escaped, and a name without content an error.

    It is made once, since compiling the templates takes longer than a page.
    """
    return jinja2.Environment(
        loader=jinja2.PackageLoader(package, "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
