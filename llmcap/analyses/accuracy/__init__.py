"""Predictions held against measurements: measured rows, fits of kernels and engine profiles."""
