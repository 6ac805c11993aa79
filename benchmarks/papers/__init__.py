"""The papers' tables re-made on real data."""
