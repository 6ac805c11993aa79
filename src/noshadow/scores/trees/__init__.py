"""Record scores of tree ensembles, with the structure of their trees fixed."""
