"""Proof of `ns.exposure`: rules chosen on calibration setups, judged once on the papers' settings."""
