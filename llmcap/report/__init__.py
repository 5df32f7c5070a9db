"""Answers as people and programs take them; knows columns and units, not models."""
