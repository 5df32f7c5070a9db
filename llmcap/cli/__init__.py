"""The command line: parse, call one analysis, print."""
