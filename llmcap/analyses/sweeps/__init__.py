"""Scenarios laid out as grids and evaluated in chunks of bounded size."""
