"""Predictions held against measurements: measured rows, serving under load, fits of kernels and engine profiles."""
