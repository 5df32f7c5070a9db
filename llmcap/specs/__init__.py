"""Documents: what a model, a machine, an engine or a study is, as checked YAML with sources."""
