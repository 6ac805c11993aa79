"""Figures behind the claims of the docs; scripts, not part of the package. A package, as opacus installs one of the same name."""
