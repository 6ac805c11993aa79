"""Fine-tunes of a small GPT-2: what its base says of each training sequence, beside LiRA with reference models."""
